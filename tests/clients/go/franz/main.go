// The franz-go client of the tests; tests/clients/README.md has the command line and the output.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"client/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	common.Run(map[string]func(){
		"produce": produce, "consume": consume, "transact": transact, "transactions": transactions, "admin": admin,
	})
}

func client(more ...kgo.Opt) *kgo.Client {
	opts := []kgo.Opt{kgo.SeedBrokers(common.Bootstrap()...), kgo.ClientID("franz-go")}
	if config := common.TLS(); config != nil {
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	switch *common.SaslMechanism {
	case "":
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: *common.SaslUser, Pass: *common.SaslPassword}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: *common.SaslUser, Pass: *common.SaslPassword}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: *common.SaslUser, Pass: *common.SaslPassword}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		opts = append(opts, kgo.SASL(oauth.Auth{Token: unsigned(*common.SaslUser)}.AsMechanism()))
	default:
		common.Fail(fmt.Errorf("unknown mechanism %s", *common.SaslMechanism))
	}
	c, err := kgo.NewClient(append(opts, more...)...)
	common.Check(err)
	return c
}

// unsigned is a token that nobody vouches for.
func unsigned(user string) string {
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, now, now+3600)
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + "."
}

func producer(more ...kgo.Opt) *kgo.Client {
	// A request's time limit is its own timeout and the overhead; both have a floor of 100 ms.
	half := time.Duration(max(*common.RequestTimeout/2, 100)) * time.Millisecond
	if common.AcksOfLeader() {
		more = append(more, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	return client(append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProduceRequestTimeout(half), kgo.RequestTimeoutOverhead(half),
		kgo.RecordDeliveryTimeout(common.DeliveryTime()),
		kgo.ProducerLinger(time.Duration(*common.LingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(int32(max(*common.BatchBytes, 512))),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Duration(*common.BackoffMs) * time.Millisecond }),
		// A broken connection asks for new metadata before anything is sent again.
		kgo.MetadataMinAge(time.Duration(max(*common.BackoffMs, 10)) * time.Millisecond),
		kgo.MaxBufferedRecords(100000),
	}, more...)...)
}

// franz-go decides itself how many requests are in flight: up to five once one has succeeded, one without idempotence.
func produce() {
	var more []kgo.Opt
	if !common.Idempotent(true) {
		more = append(more, kgo.DisableIdempotentWrite())
	}
	c := producer(more...)
	sent := common.EachRecord(func(n int) {
		c.Produce(context.Background(), record(n), func(r *kgo.Record, err error) {
			common.Delivered(n, r.Partition, r.Offset, err)
		})
	})
	common.Check(c.Flush(context.Background()))
	c.Close()
	common.Produced(sent)
}

func consume() {
	opts := []kgo.Opt{
		kgo.ConsumeTopics(*common.Topic), kgo.ConsumerGroup(*common.Group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if *common.ReadCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c := client(opts...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*common.TimeoutMs)*time.Millisecond)
	defer cancel()
	consumed := 0
	for consumed < *common.Count {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			common.Fail(fmt.Errorf("after %d records: %w", consumed, err))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			consumed++
			common.Consumed(r.Value, r.Partition, r.Offset)
		})
	}
	common.Check(c.CommitUncommittedOffsets(ctx))
	c.Close()
	common.Line(map[string]any{"consumed": consumed})
}

func transact() {
	c := producer(kgo.TransactionalID(*common.TransactionalID))
	ctx := context.Background()
	common.Transactions(
		func() { common.Check(c.BeginTransaction()) },
		func(n int) (int32, int64) {
			r := record(n)
			common.Check(c.ProduceSync(ctx, r).FirstErr())
			return r.Partition, r.Offset
		},
		func(commit bool) { common.Check(c.EndTransaction(ctx, kgo.TransactionEndTry(commit))) },
	)
	c.Close()
}

func transactions() {
	var c *kgo.Client
	ctx := context.Background()
	common.EndlessTransactions(func(first, count int) (places [][2]int64, mayBe bool, err error) {
		if c == nil {
			c = producer(kgo.TransactionalID(*common.TransactionalID))
		}
		defer func() {
			if err == nil {
				return
			}
			if fatal := c.EndTransaction(ctx, kgo.TryAbort); fatal != nil {
				common.Line(map[string]any{"fatal": fmt.Sprintf("%v, then %v", err, fatal)})
				c.Close()
				c = nil
				return
			}
			mayBe = false
		}()
		if err := c.BeginTransaction(); err != nil {
			return nil, false, err
		}
		records := make([]*kgo.Record, count)
		for i := range records {
			records[i] = record(first + i)
		}
		if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return nil, false, err
		}
		if err := c.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return nil, true, err
		}
		for _, r := range records {
			places = append(places, [2]int64{int64(r.Partition), r.Offset})
		}
		return places, false, nil
	})
}

func admin() {
	c := client()
	a := kadm.NewClient(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*common.TimeoutMs)*time.Millisecond)
	defer cancel()
	topic := *common.Topic
	_, err := a.CreateTopic(ctx, int32(*common.Partitions), int16(*common.Replication), nil, topic)
	common.Check(err)
	common.Line(map[string]any{"step": "create_topic"})
	for { // a node learns of a topic a moment after the controller
		topics, err := a.ListTopics(ctx, topic)
		common.Check(err)
		if detail := topics[topic]; detail.Err == nil && len(detail.Partitions) == *common.Partitions {
			common.Line(map[string]any{"step": "describe_topic", "partitions": len(detail.Partitions)})
			break
		}
	}
	meta, err := a.BrokerMetadata(ctx)
	common.Check(err)
	brokers := []string{}
	for _, b := range meta.Brokers {
		brokers = append(brokers, fmt.Sprintf("%s:%d", b.Host, b.Port))
	}
	common.Line(map[string]any{"step": "describe_cluster", "cluster": meta.Cluster, "brokers": brokers})
	configs, err := a.DescribeTopicConfigs(ctx, topic)
	common.Check(err)
	common.Line(map[string]any{"step": "describe_configs", "entries": len(configs[0].Configs)})
	groups, err := a.ListGroups(ctx)
	common.Check(err)
	common.Line(map[string]any{"step": "list_groups", "groups": groups.Groups()})
	_, err = a.DeleteTopic(ctx, topic)
	common.Check(err)
	common.Line(map[string]any{"step": "delete_topic"})
	c.Close()
	common.Line(map[string]any{"steps": 6})
}

func record(n int) *kgo.Record {
	topic, partition := common.Place(n)
	return &kgo.Record{
		Topic: topic, Partition: int32(partition), Key: common.Key(n), Value: common.Value(n), Timestamp: common.Timestamp(),
	}
}
