// Sends numbered values at a steady rate with an idempotent producer of franz-go, and reads them in a group of one if it
// has a name. What it prints and what it is told is described in steady_clients.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const keys = 20

var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

func check(err error) {
	if err != nil {
		say("F %v", err)
		os.Exit(1)
	}
}

func main() {
	seeds, topic, name, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[5]
	perSecond, err := strconv.ParseInt(os.Args[4], 10, 64)
	check(err)
	lines := make(chan struct{})
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			lines <- struct{}{}
		}
		close(lines)
	}()
	consumed := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	if group == "" {
		close(consumed)
	} else {
		go consume(ctx, seeds, topic, group, consumed)
	}
	produce(seeds, topic, name, perSecond, lines)
	<-lines
	cancel()
	<-consumed
	say("ended")
}

func produce(seeds []string, topic, name string, perSecond int64, stop <-chan struct{}) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic))
	check(err)
	defer producer.Close()
	var sent, failed int64
	for began := time.Now(); ; {
		select {
		case <-stop:
			check(producer.Flush(context.Background()))
			say("stopped %d %d", sent, failed)
			return
		default:
		}
		if sent*int64(time.Second) > int64(time.Since(began))*perSecond {
			time.Sleep(time.Millisecond)
			continue
		}
		at := time.Now()
		record := &kgo.Record{
			Key:   []byte(fmt.Sprintf("%s-%d", name, sent%keys)),
			Value: []byte(fmt.Sprintf("%s:%d", name, sent)),
		}
		producer.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			if err != nil {
				failed++
				say("F %v", err)
				return
			}
			say("A %s %s %d %d %d", r.Key, r.Value, r.Partition, r.Offset, time.Since(at).Microseconds())
		})
		sent++
	}
}

func consume(ctx context.Context, seeds []string, topic, group string, done chan<- struct{}) {
	defer close(done)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { say("J") }))
	check(err)
	defer consumer.CloseAllowingRebalance()
	for ctx.Err() == nil {
		consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			say("R %s %s %d %d", r.Key, r.Value, r.Partition, r.Offset)
		})
		consumer.AllowRebalance()
	}
	check(consumer.CommitUncommittedOffsets(context.Background()))
}
