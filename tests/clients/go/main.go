// The franz-go client of the tests; tests/clients/README.md has the command line and the output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	flags           = flag.NewFlagSet("client", flag.ExitOnError)
	bootstrap       = flags.String("bootstrap", "", "")
	topic           = flags.String("topic", "", "")
	partitions      = flags.Int("partitions", 1, "")
	replication     = flags.Int("replication", 1, "")
	count           = flags.Int("count", 0, "")
	first           = flags.Int("first", 0, "")
	rate            = flags.Int("rate", 0, "")
	untilInputEnds  = flags.Bool("until-input-ends", false, "")
	requestTimeout  = flags.Int("request-timeout-ms", 30000, "")
	deliveryTimeout = flags.Int("delivery-timeout-ms", 120000, "")
	lingerMs        = flags.Int("linger-ms", 0, "")
	batchBytes      = flags.Int("batch-bytes", 16384, "")
	_               = flags.Int("in-flight", 5, "") // franz-go decides: up to five once a request has succeeded
	backoffMs       = flags.Int("backoff-ms", 100, "")
	acks            = flags.String("acks", "all", "")
	idempotence     = flags.String("idempotence", "true", "") // true is also what franz-go does where it is unset
	keys            = flags.Bool("keys", false, "")
	group           = flags.String("group", "", "")
	readCommitted   = flags.Bool("read-committed", false, "")
	timeoutMs       = flags.Int("timeout-ms", 30000, "")
	transactionalID = flags.String("transactional-id", "", "")
	saslMechanism   = flags.String("sasl-mechanism", "", "")
	saslUser        = flags.String("sasl-user", "", "")
	saslPassword    = flags.String("sasl-password", "", "")

	output sync.Mutex
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("an operation is missing"))
	}
	_ = flags.Parse(os.Args[2:])
	switch os.Args[1] {
	case "produce":
		produce()
	case "consume":
		consume()
	case "transact":
		transact()
	case "admin":
		admin()
	default:
		fail(fmt.Errorf("unknown operation %s", os.Args[1]))
	}
}

func client(more ...kgo.Opt) *kgo.Client {
	opts := []kgo.Opt{kgo.SeedBrokers(strings.Split(*bootstrap, ",")...), kgo.ClientID("franz-go")}
	switch *saslMechanism {
	case "":
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: *saslUser, Pass: *saslPassword}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: *saslUser, Pass: *saslPassword}.AsSha256Mechanism()))
	default:
		fail(fmt.Errorf("unknown mechanism %s", *saslMechanism))
	}
	c, err := kgo.NewClient(append(opts, more...)...)
	check(err)
	return c
}

func producer(more ...kgo.Opt) *kgo.Client {
	// A request's time limit is its own timeout and the overhead; both have a floor of 100 ms.
	half := time.Duration(max(*requestTimeout/2, 100)) * time.Millisecond
	switch *acks {
	case "all":
	case "1":
		more = append(more, kgo.RequiredAcks(kgo.LeaderAck()))
	default:
		fail(fmt.Errorf("unknown acks %s", *acks))
	}
	if *idempotence == "false" {
		more = append(more, kgo.DisableIdempotentWrite())
	}
	return client(append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProduceRequestTimeout(half), kgo.RequestTimeoutOverhead(half),
		kgo.RecordDeliveryTimeout(time.Duration(*deliveryTimeout) * time.Millisecond),
		kgo.ProducerLinger(time.Duration(*lingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(int32(max(*batchBytes, 512))),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Duration(*backoffMs) * time.Millisecond }),
		// A broken connection asks for new metadata before anything is sent again.
		kgo.MetadataMinAge(time.Duration(max(*backoffMs, 10)) * time.Millisecond),
		kgo.MaxBufferedRecords(100000),
	}, more...)...)
}

func produce() {
	c := producer()
	ended := make(chan struct{})
	if *untilInputEnds {
		go func() {
			s := bufio.NewScanner(os.Stdin)
			for s.Scan() {
			}
			close(ended)
		}()
	}
	acked, failed, sent := 0, 0, 0
	start := time.Now()
	for n := *first; *count == 0 || sent < *count; n++ {
		select {
		case <-ended:
			goto flush
		default:
		}
		if *rate > 0 {
			if ahead := time.Duration(sent)*time.Second/time.Duration(*rate) - time.Since(start); ahead > 0 {
				time.Sleep(ahead)
			}
		}
		record := &kgo.Record{Topic: *topic, Partition: int32(n % *partitions), Value: []byte(strconv.Itoa(n))}
		if *keys {
			record.Key = []byte("msg-" + strconv.Itoa(n))
		}
		c.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			output.Lock()
			defer output.Unlock()
			if err != nil {
				failed++
				line(map[string]any{"n": n, "error": err.Error()})
				return
			}
			acked++
			line(map[string]any{"n": n, "partition": r.Partition, "offset": r.Offset})
		})
		sent++
	}
flush:
	check(c.Flush(context.Background()))
	c.Close()
	line(map[string]any{"sent": sent, "acked": acked, "failed": failed})
	if failed > 0 {
		os.Exit(1)
	}
}

func consume() {
	opts := []kgo.Opt{kgo.ConsumeTopics(*topic), kgo.ConsumerGroup(*group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if *readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c := client(opts...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*timeoutMs)*time.Millisecond)
	defer cancel()
	consumed := 0
	for consumed < *count {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			fail(fmt.Errorf("after %d records: %w", consumed, err))
		}
		fetches.EachRecord(func(r *kgo.Record) { consumed++; record(r) })
	}
	check(c.CommitUncommittedOffsets(ctx))
	c.Close()
	line(map[string]any{"consumed": consumed})
}

// Three transactions of --count records: committed, aborted, committed.
func transact() {
	c := producer(kgo.TransactionalID(*transactionalID))
	ctx := context.Background()
	n := *first
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		check(c.BeginTransaction())
		for range *count {
			r := &kgo.Record{Topic: *topic, Partition: int32(n % *partitions), Value: []byte(strconv.Itoa(n))}
			check(c.ProduceSync(ctx, r).FirstErr())
			line(map[string]any{"n": n, "partition": r.Partition, "offset": r.Offset, "committed": end == kgo.TryCommit})
			n++
		}
		check(c.EndTransaction(ctx, end))
	}
	c.Close()
	line(map[string]any{"committed": 2 * *count, "aborted": *count})
}

func admin() {
	c := client()
	a := kadm.NewClient(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*timeoutMs)*time.Millisecond)
	defer cancel()
	_, err := a.CreateTopic(ctx, int32(*partitions), int16(*replication), nil, *topic)
	check(err)
	line(map[string]any{"step": "create_topic"})
	for { // a node learns of a topic a moment after the controller
		topics, err := a.ListTopics(ctx, *topic)
		check(err)
		if detail := topics[*topic]; detail.Err == nil && len(detail.Partitions) == *partitions {
			line(map[string]any{"step": "describe_topic", "partitions": len(detail.Partitions)})
			break
		}
	}
	meta, err := a.BrokerMetadata(ctx)
	check(err)
	brokers := []string{}
	for _, b := range meta.Brokers {
		brokers = append(brokers, fmt.Sprintf("%s:%d", b.Host, b.Port))
	}
	line(map[string]any{"step": "describe_cluster", "cluster": meta.Cluster, "brokers": brokers})
	configs, err := a.DescribeTopicConfigs(ctx, *topic)
	check(err)
	line(map[string]any{"step": "describe_configs", "entries": len(configs[0].Configs)})
	groups, err := a.ListGroups(ctx)
	check(err)
	line(map[string]any{"step": "list_groups", "groups": groups.Groups()})
	_, err = a.DeleteTopic(ctx, *topic)
	check(err)
	line(map[string]any{"step": "delete_topic"})
	c.Close()
	line(map[string]any{"steps": 6})
}

func record(r *kgo.Record) {
	n, err := strconv.Atoi(string(r.Value))
	check(err)
	line(map[string]any{"n": n, "partition": r.Partition, "offset": r.Offset})
}

func line(v any) {
	text, err := json.Marshal(v)
	check(err)
	fmt.Println(string(text))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "franz-go client:", err)
	os.Exit(1)
}
