// Creates a topic with franz-go, writes to it with an idempotent producer, and reads all of it in a group of two.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 1000

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func main() {
	seeds, topic := strings.Split(os.Args[1], ","), os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	producer, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic))
	check(err)
	defer producer.Close()
	admin := kadm.NewClient(producer)
	created, err := admin.CreateTopic(ctx, 4, 2, nil, topic)
	check(err)
	check(created.Err)

	for i := 0; i < count; i++ {
		record := &kgo.Record{Key: []byte(fmt.Sprint(i % 10)), Value: []byte(fmt.Sprint(i))}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
	}
	check(producer.Flush(ctx))

	seen := make(chan string, 2*count)
	for member := 0; member < 2; member++ {
		consumer, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumerGroup("g-"+topic), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll())
		check(err)
		go func() {
			for ctx.Err() == nil {
				fetches := consumer.PollFetches(ctx)
				for _, failed := range fetches.Errors() {
					if ctx.Err() == nil {
						check(failed.Err)
					}
				}
				fetches.EachRecord(func(r *kgo.Record) { seen <- string(r.Value) })
				check(consumer.CommitUncommittedOffsets(ctx))
				consumer.AllowRebalance()
			}
		}()
	}
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
	lags, err := admin.Lag(ctx, "g-"+topic)
	check(err)
	fmt.Println("read", len(values), "lag known for", len(lags))
	deleted, err := admin.DeleteTopic(ctx, topic)
	check(err)
	check(deleted.Err)
	fmt.Println("done")
}
