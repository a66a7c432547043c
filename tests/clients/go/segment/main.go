// The kafka-go client of the tests; tests/clients/README.md has the command line and the output.
// kafka-go has neither idempotence nor transactions.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"client/common"

	"github.com/segmentio/kafka-go"
)

func main() {
	common.Run(map[string]func(){"produce": produce, "consume": consume})
}

func produce() {
	if common.Idempotent(false) {
		common.Fail(errors.New("kafka-go has no idempotence: produce wants --idempotence false"))
	}
	acks := kafka.RequireAll
	if common.AcksOfLeader() {
		acks = kafka.RequireOne
	}
	w := &kafka.Writer{
		Addr:         kafka.TCP(common.Bootstrap()...),
		Topic:        *common.Topic,
		RequiredAcks: acks,
		BatchTimeout: time.Duration(max(*common.LingerMs, 10)) * time.Millisecond,
		WriteTimeout: time.Duration(*common.RequestTimeout) * time.Millisecond,
		Async:        true,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int {
			return common.PartitionOf(number(m))
		}),
		Completion: func(messages []kafka.Message, err error) {
			for _, m := range messages {
				common.Delivered(number(m), int32(m.Partition), m.Offset, err)
			}
		},
	}
	sent := common.EachRecord(func(n int) {
		common.Check(w.WriteMessages(context.Background(), kafka.Message{Key: common.Key(n), Value: common.Value(n)}))
	})
	common.Check(w.Close())
	common.Produced(sent)
}

func consume() {
	config := kafka.ReaderConfig{
		Brokers: common.Bootstrap(), Topic: *common.Topic, GroupID: *common.Group, StartOffset: kafka.FirstOffset,
		MaxWait: 500 * time.Millisecond,
	}
	if *common.ReadCommitted {
		config.IsolationLevel = kafka.ReadCommitted
	}
	r := kafka.NewReader(config)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*common.TimeoutMs)*time.Millisecond)
	defer cancel()
	for consumed := range *common.Count {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			common.Fail(fmt.Errorf("after %d records: %w", consumed, err))
		}
		common.Consumed(m.Value, int32(m.Partition), m.Offset)
		common.Check(r.CommitMessages(ctx, m))
	}
	common.Check(r.Close())
	common.Line(map[string]any{"consumed": *common.Count})
}

func number(m kafka.Message) int {
	n, err := strconv.Atoi(string(m.Value))
	common.Check(err)
	return n
}
