// Creates a topic with Sarama, writes to it with an idempotent producer, and reads all of it in a group.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const count = 1000

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

type reader struct{ seen chan string }

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.seen <- string(message.Value)
		session.MarkMessage(message, "")
	}
	return nil
}

func main() {
	seeds, topic := strings.Split(os.Args[1], ","), os.Args[2]
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest

	admin, err := sarama.NewClusterAdmin(seeds, config)
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 2}, false))

	producer, err := sarama.NewSyncProducer(seeds, config)
	check(err)
	var messages []*sarama.ProducerMessage
	for i := 0; i < count; i++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(i % 10)), Value: sarama.StringEncoder(fmt.Sprint(i)),
		})
	}
	check(producer.SendMessages(messages))
	check(producer.Close())

	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	group, err := sarama.NewConsumerGroup(seeds, "g-"+topic, config)
	check(err)
	seen := make(chan string, 2*count)
	go func() {
		for ctx.Err() == nil {
			check(group.Consume(ctx, []string{topic}, reader{seen}))
		}
	}()
	values := map[string]int{}
	for len(values) < count {
		select {
		case value := <-seen:
			values[value]++
		case <-ctx.Done():
			fmt.Println("failed: only", len(values), "messages were read")
			os.Exit(1)
		}
	}
	check(admin.DeleteTopic(topic))
	fmt.Println("done")
}
