// Package common is what the Go clients of the tests share: the command line and the lines they print.
package common

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The options; tests/clients/README.md explains them.
var (
	flags           = flag.NewFlagSet("client", flag.ExitOnError)
	bootstrap       = flags.String("bootstrap", "", "")
	Topic           = flags.String("topic", "", "")
	Partitions      = flags.Int("partitions", 1, "")
	Replication     = flags.Int("replication", 1, "")
	Count           = flags.Int("count", 0, "")
	First           = flags.Int("first", 0, "")
	rate            = flags.Int("rate", 0, "")
	untilInputEnds  = flags.Bool("until-input-ends", false, "")
	acks            = flags.String("acks", "all", "")
	idempotence     = flags.String("idempotence", "true", "")
	keys            = flags.Bool("keys", false, "")
	RequestTimeout  = flags.Int("request-timeout-ms", 30000, "")
	DeliveryTimeout = flags.Int("delivery-timeout-ms", 120000, "")
	LingerMs        = flags.Int("linger-ms", 0, "")
	BatchBytes      = flags.Int("batch-bytes", 16384, "")
	InFlight        = flags.Int("in-flight", 5, "")
	BackoffMs       = flags.Int("backoff-ms", 100, "")
	Group           = flags.String("group", "", "")
	ReadCommitted   = flags.Bool("read-committed", false, "")
	TimeoutMs       = flags.Int("timeout-ms", 30000, "")
	ageMs           = flags.Int("age-ms", 0, "")
	TransactionalID = flags.String("transactional-id", "", "")
	SaslMechanism   = flags.String("sasl-mechanism", "", "")
	SaslUser        = flags.String("sasl-user", "", "")
	SaslPassword    = flags.String("sasl-password", "", "")
	tlsCa           = flags.String("tls-ca", "", "")
	tlsCert         = flags.String("tls-cert", "", "")
	tlsKey          = flags.String("tls-key", "", "")

	// Where records go, once a line of the input has named another topic.
	target atomic.Pointer[place]

	tally  sync.Mutex
	acked  int
	failed int
)

// Run reads the command line and runs the operation that it names.
func Run(operations map[string]func()) {
	if len(os.Args) < 2 {
		Fail(errors.New("an operation is missing"))
	}
	operation := operations[os.Args[1]]
	if operation == nil {
		Fail(fmt.Errorf("unknown operation %s", os.Args[1]))
	}
	_ = flags.Parse(os.Args[2:])
	operation()
}

// Bootstrap is the list of the first brokers.
func Bootstrap() []string { return strings.Split(*bootstrap, ",") }

// TLS is what the options say of it; nil for plaintext.
func TLS() *tls.Config {
	if *tlsCa == "" {
		return nil
	}
	pem, err := os.ReadFile(*tlsCa)
	Check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		Fail(errors.New("no CA in " + *tlsCa))
	}
	if *tlsCert != "" {
		own, err := tls.LoadX509KeyPair(*tlsCert, *tlsKey)
		Check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

// PartitionOf is where record n goes.
func PartitionOf(n int) int { return n % *Partitions }

type place struct {
	topic      string
	partitions int
}

// Place is the topic and the partition of record n.
func Place(n int) (string, int) {
	if to := target.Load(); to != nil {
		return to.topic, n % to.partitions
	}
	return *Topic, PartitionOf(n)
}

// DeliveryTime is how old a record may become: franz-go counts from its timestamp.
func DeliveryTime() time.Duration {
	return time.Duration(*DeliveryTimeout+*ageMs) * time.Millisecond
}

// Timestamp is the time of a record that is as old as was asked for; the zero time for now.
func Timestamp() time.Time {
	if *ageMs == 0 {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(*ageMs) * time.Millisecond)
}

// followInput lets lines of the input name another topic and its partitions, until it ends.
func followInput() {
	s := bufio.NewScanner(os.Stdin)
	for s.Scan() {
		to := new(place)
		if _, err := fmt.Sscanf(s.Text(), "topic %s %d", &to.topic, &to.partitions); err == nil {
			target.Store(to)
		}
	}
}

// Value is what record n holds.
func Value(n int) []byte { return []byte(strconv.Itoa(n)) }

// Key is the key of record n, if it is to have one.
func Key(n int) []byte {
	if !*keys {
		return nil
	}
	return []byte("msg-" + strconv.Itoa(n))
}

// Idempotent tells whether idempotence is asked for; where it is left to the client, otherwise.
func Idempotent(otherwise bool) bool {
	if *idempotence == "unset" {
		return otherwise
	}
	return *idempotence == "true"
}

// AcksOfLeader tells whether acks are asked of the leader alone, not of all.
func AcksOfLeader() bool {
	if *acks != "1" && *acks != "all" {
		Fail(fmt.Errorf("unknown acks %s", *acks))
	}
	return *acks == "1"
}

// EachRecord calls send for each record to be produced, at the asked rate, and returns how many there were.
func EachRecord(send func(n int)) int {
	ended := make(chan struct{})
	if *untilInputEnds {
		go func() {
			followInput()
			close(ended)
		}()
	}
	start, sent := time.Now(), 0
	for n := *First; *Count == 0 || sent < *Count; n++ {
		select {
		case <-ended:
			return sent
		default:
		}
		if *rate > 0 {
			if ahead := time.Duration(sent)*time.Second/time.Duration(*rate) - time.Since(start); ahead > 0 {
				time.Sleep(ahead)
			}
		}
		send(n)
		sent++
	}
	return sent
}

// Delivered prints where record n is, or why it is not.
func Delivered(n int, partition int32, offset int64, err error) {
	tally.Lock()
	defer tally.Unlock()
	if err != nil {
		failed++
		line(map[string]any{"n": n, "error": err.Error()})
		return
	}
	acked++
	line(map[string]any{"n": n, "partition": partition, "offset": offset})
}

// Produced prints the summary of produce and ends the program.
func Produced(sent int) {
	tally.Lock()
	line(map[string]any{"sent": sent, "acked": acked, "failed": failed})
	if failed > 0 || acked != sent {
		os.Exit(1)
	}
}

// EndlessTransactions runs one transaction after another, each again until it is committed or nobody can say whether it
// is. A commit gives the records' places, an error if there was one, and whether it may be committed all the same.
func EndlessTransactions(commit func(first, count int) (places [][2]int64, mayBe bool, err error)) {
	ended := make(chan struct{})
	go func() {
		followInput()
		close(ended)
	}()
	n, start := *First, time.Now()
	for {
		select {
		case <-ended:
			Line(map[string]any{"sent": n - *First})
			return
		case <-time.After(time.Duration(n-*First)*time.Second/time.Duration(*rate) - time.Since(start)):
		}
		places, mayBe, err := commit(n, *Count)
		if err != nil {
			Line(map[string]any{"aborted": err.Error()})
		}
		for i := range *Count {
			switch {
			case err == nil:
				Delivered(n+i, int32(places[i][0]), places[i][1], nil)
			case mayBe:
				Delivered(n+i, -1, -1, errors.New("committed or not"))
			}
		}
		if err == nil || mayBe {
			n += *Count
		}
	}
}

// Transactions runs three of Count records each: committed, aborted, committed.
func Transactions(begin func(), send func(n int) (int32, int64), end func(commit bool)) {
	n := *First
	for _, commit := range []bool{true, false, true} {
		begin()
		for range *Count {
			partition, offset := send(n)
			Line(map[string]any{"n": n, "partition": partition, "offset": offset, "committed": commit})
			n++
		}
		end(commit)
	}
	Line(map[string]any{"committed": 2 * *Count, "aborted": *Count})
}

// Consumed prints one record that was read.
func Consumed(value []byte, partition int32, offset int64) {
	n, err := strconv.Atoi(string(value))
	Check(err)
	Line(map[string]any{"n": n, "partition": partition, "offset": offset})
}

// Line prints one line of output.
func Line(v any) {
	tally.Lock()
	defer tally.Unlock()
	line(v)
}

func line(v any) {
	text, err := json.Marshal(v)
	Check(err)
	fmt.Println(string(text))
}

// Check ends the program where there is an error.
func Check(err error) {
	if err != nil {
		Fail(err)
	}
}

// Fail says what failed and ends the program.
func Fail(err error) {
	fmt.Fprintln(os.Stderr, "client:", err)
	os.Exit(1)
}
