// The sarama client of the tests; tests/clients/README.md has the command line and the output.
package main

import (
	"context"
	"fmt"
	"time"

	"client/common"

	"github.com/IBM/sarama"
)

func main() {
	common.Run(map[string]func(){"produce": produce, "consume": consume, "transact": transact})
}

// The protocol version is sarama's default: what an application has that sets none.
func config() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "sarama"
	return c
}

func producerConfig() *sarama.Config {
	c := config()
	c.Producer.RequiredAcks = sarama.WaitForAll
	if common.AcksOfLeader() {
		c.Producer.RequiredAcks = sarama.WaitForLocal
	}
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes = true
	c.Producer.Flush.Frequency = time.Duration(*common.LingerMs) * time.Millisecond
	c.Producer.Retry.Max = 1000
	// Else it gives up what it has when it finds no leader for a second.
	c.Metadata.Retry.Max = 1000
	c.Producer.Retry.Backoff = time.Duration(*common.BackoffMs) * time.Millisecond
	c.Net.ReadTimeout = time.Duration(*common.RequestTimeout) * time.Millisecond
	return c
}

// What sarama demands of an idempotent producer, beside acks of all: one request in flight.
func idempotent(c *sarama.Config) *sarama.Config {
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	return c
}

func produce() {
	c := producerConfig()
	if common.Idempotent(false) {
		c = idempotent(c)
	}
	p, err := sarama.NewAsyncProducer(common.Bootstrap(), c)
	common.Check(err)
	told := make(chan int, 1)
	go func() { told <- common.EachRecord(func(n int) { p.Input() <- message(n) }) }()
	// It is closed when all is told: a retry that meets a closing sarama fails.
	sent, delivered := -1, 0
	for sent != delivered {
		select {
		case sent = <-told:
			continue
		case m := <-p.Successes():
			common.Delivered(m.Metadata.(int), m.Partition, m.Offset, nil)
		case e := <-p.Errors():
			common.Delivered(e.Msg.Metadata.(int), -1, -1, e.Err)
		}
		delivered++
	}
	common.Check(p.Close())
	common.Produced(sent)
}

func transact() {
	c := idempotent(producerConfig())
	c.Producer.Transaction.ID = *common.TransactionalID
	p, err := sarama.NewSyncProducer(common.Bootstrap(), c)
	common.Check(err)
	common.Transactions(
		func() { common.Check(p.BeginTxn()) },
		func(n int) (int32, int64) {
			partition, offset, err := p.SendMessage(message(n))
			common.Check(err)
			return partition, offset
		},
		func(commit bool) {
			if commit {
				common.Check(p.CommitTxn())
			} else {
				common.Check(p.AbortTxn())
			}
		},
	)
	common.Check(p.Close())
}

func message(n int) *sarama.ProducerMessage {
	topic, partition := common.Place(n)
	m := &sarama.ProducerMessage{
		Topic: topic, Partition: int32(partition), Value: sarama.ByteEncoder(common.Value(n)), Metadata: n,
		Timestamp: common.Timestamp(),
	}
	if key := common.Key(n); key != nil {
		m.Key = sarama.ByteEncoder(key)
	}
	return m
}

func consume() {
	c := config()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	if *common.ReadCommitted {
		c.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	group, err := sarama.NewConsumerGroup(common.Bootstrap(), *common.Group, c)
	common.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*common.TimeoutMs)*time.Millisecond)
	defer cancel()
	reader := &reader{records: make(chan *sarama.ConsumerMessage), enough: make(chan struct{})}
	consumed := 0
	go func() {
		for consumed < *common.Count {
			select {
			case m := <-reader.records:
				consumed++
				common.Consumed(m.Value, m.Partition, m.Offset)
			case <-ctx.Done():
				common.Fail(fmt.Errorf("after %d records: %w", consumed, ctx.Err()))
			}
		}
		close(reader.enough)
	}()
	for !reader.isDone() {
		common.Check(group.Consume(ctx, []string{*common.Topic}, reader))
	}
	common.Check(group.Close())
	common.Line(map[string]any{"consumed": consumed})
}

// A reader passes on the records of every partition that it is given, and commits when there were enough.
type reader struct {
	records chan *sarama.ConsumerMessage
	enough  chan struct{}
}

func (r *reader) isDone() bool {
	select {
	case <-r.enough:
		return true
	default:
		return false
	}
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case r.records <- m:
				session.MarkMessage(m, "")
			case <-r.enough:
				return nil
			}
		case <-r.enough:
			return nil
		case <-session.Context().Done():
			return nil
		}
	}
}
