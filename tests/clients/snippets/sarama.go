// Around the README's lines for sarama: one record.
package main

import "github.com/IBM/sarama"

func main() {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true // a SyncProducer wants it, whatever it talks to
	// SNIPPET
	if err != nil {
		panic(err)
	}
	record := &sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder("1")}
	if _, _, err := producer.SendMessage(record); err != nil {
		panic(err)
	}
	if err := producer.Close(); err != nil {
		panic(err)
	}
}
