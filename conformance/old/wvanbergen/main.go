// Reader is a member of a consumer group of wvanbergen/kafka: ZOOKEEPER TOPIC GROUP COUNT.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/Shopify/sarama"
	"github.com/wvanbergen/kafka/consumergroup"
	"github.com/wvanbergen/kazoo-go"
)

func main() {
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	config := consumergroup.NewConfig()
	config.Offsets.Initial = sarama.OffsetOldest
	config.Offsets.ProcessingTimeout = 10 * time.Second
	config.Zookeeper.Timeout = 6 * time.Second
	nodes, chroot := kazoo.ParseConnectionString(os.Args[1])
	config.Zookeeper.Chroot = chroot
	member, err := consumergroup.JoinConsumerGroup(os.Args[3], []string{os.Args[2]}, nodes, config)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for err := range member.Errors() {
			log.Println(err)
		}
	}()
	for read := 0; read < count; read++ {
		message := <-member.Messages()
		fmt.Println(string(message.Value))
		if err := member.CommitUpto(message); err != nil {
			log.Fatal(err)
		}
	}
	// Close stores the positions of all partitions at the same time. Then the library creates the
	// nodes above several times, and loses the positions whose creation came second.
	if err := member.FlushOffsets(); err != nil {
		log.Fatal(err)
	}
	if err := member.Close(); err != nil {
		log.Fatal(err)
	}
}
