// Around the README's lines for franz-go: one record.
package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	// SNIPPET
	if err != nil {
		panic(err)
	}
	record := &kgo.Record{Topic: "orders", Value: []byte("1")}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		panic(err)
	}
}
