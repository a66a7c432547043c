// The confluent-kafka-go (librdkafka) client of the tests; tests/clients/README.md has the command line and the output.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"client/common"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func main() {
	common.Run(map[string]func(){"produce": produce, "consume": consume, "transact": transact})
}

func config(more kafka.ConfigMap) *kafka.ConfigMap {
	c := kafka.ConfigMap{"bootstrap.servers": strings.Join(common.Bootstrap(), ","), "client.id": "confluent-kafka-go"}
	for name, value := range more {
		c[name] = value
	}
	return &c
}

func producer(more kafka.ConfigMap) *kafka.Producer {
	for name, value := range map[string]int{
		"socket.timeout.ms": *common.RequestTimeout, "message.timeout.ms": *common.DeliveryTimeout,
		"linger.ms": *common.LingerMs, "batch.size": *common.BatchBytes,
		"max.in.flight.requests.per.connection": *common.InFlight, "retry.backoff.ms": *common.BackoffMs,
	} {
		if _, set := more[name]; !set {
			more[name] = value
		}
	}
	if common.AcksOfLeader() {
		more["acks"] = 1
	}
	p, err := kafka.NewProducer(config(more))
	common.Check(err)
	return p
}

func produce() {
	p := producer(kafka.ConfigMap{"enable.idempotence": common.Idempotent(false)})
	sent := make(chan int, 1)
	go func() {
		sent <- common.EachRecord(func(n int) { send(p, n, nil) })
	}()
	expected, delivered := -1, 0
	for expected < 0 || delivered < expected {
		select {
		case expected = <-sent:
		case event := <-p.Events():
			if m, ok := event.(*kafka.Message); ok {
				delivered++
				at := m.TopicPartition
				common.Delivered(m.Opaque.(int), at.Partition, int64(at.Offset), at.Error)
			}
		}
	}
	p.Close()
	common.Produced(expected)
}

func transact() {
	p := producer(kafka.ConfigMap{"transactional.id": *common.TransactionalID, "message.timeout.ms": 60000})
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*common.TimeoutMs)*time.Millisecond)
	defer cancel()
	common.Check(p.InitTransactions(ctx))
	delivered := make(chan kafka.Event, 1)
	common.Transactions(
		func() { common.Check(p.BeginTransaction()) },
		func(n int) (int32, int64) {
			send(p, n, delivered)
			at := (<-delivered).(*kafka.Message).TopicPartition
			common.Check(at.Error)
			return at.Partition, int64(at.Offset)
		},
		func(commit bool) {
			if commit {
				common.Check(p.CommitTransaction(ctx))
			} else {
				common.Check(p.AbortTransaction(ctx))
			}
		},
	)
	p.Close()
}

// Waits while the queue is full; another goroutine empties it.
func send(p *kafka.Producer, n int, delivered chan kafka.Event) {
	at := kafka.TopicPartition{Topic: common.Topic, Partition: int32(common.PartitionOf(n))}
	for {
		err := p.Produce(&kafka.Message{TopicPartition: at, Key: common.Key(n), Value: common.Value(n), Opaque: n}, delivered)
		if failure, ok := err.(kafka.Error); ok && failure.Code() == kafka.ErrQueueFull {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		common.Check(err)
		return
	}
}

func consume() {
	isolation := "read_uncommitted"
	if *common.ReadCommitted {
		isolation = "read_committed"
	}
	c, err := kafka.NewConsumer(config(kafka.ConfigMap{
		"group.id": *common.Group, "auto.offset.reset": "earliest", "enable.auto.commit": false, "isolation.level": isolation,
	}))
	common.Check(err)
	common.Check(c.Subscribe(*common.Topic, nil))
	end := time.Now().Add(time.Duration(*common.TimeoutMs) * time.Millisecond)
	for consumed := range *common.Count {
		m, err := c.ReadMessage(time.Until(end))
		if err != nil {
			common.Fail(fmt.Errorf("after %d records: %w", consumed, err))
		}
		common.Consumed(m.Value, m.TopicPartition.Partition, int64(m.TopicPartition.Offset))
	}
	_, err = c.Commit()
	common.Check(err)
	common.Check(c.Close())
	common.Line(map[string]any{"consumed": *common.Count})
}
