// What a user of sarama writes, with its default settings; see ../README.md.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	address := []string{os.Args[2]}
	config := sarama.NewConfig()
	switch os.Args[1] {
	case "produce":
		produce(address, config, os.Args[3], os.Args[4])
	case "read":
		count, err := strconv.Atoi(os.Args[4])
		must(err)
		read(address, config, os.Args[3], count)
	case "member":
		member(address, config, os.Args[3], os.Args[4])
	case "admin":
		admin(address, config, os.Args[3])
	case "transact":
		transact(address, config, os.Args[3])
	default:
		log.Fatal("unknown command ", os.Args[1])
	}
}

func produce(address []string, config *sarama.Config, topic, codec string) {
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	config.Producer.Compression = codecs[codec]
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(address, config)
	must(err)
	defer producer.Close()
	headers := []sarama.RecordHeader{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("a"), Value: []byte("2")}, {Key: []byte("b"), Value: []byte{}}}
	must(producer.SendMessages([]*sarama.ProducerMessage{
		{Topic: topic, Key: sarama.StringEncoder("k0"), Value: sarama.StringEncoder("v0")},
		{Topic: topic, Value: sarama.StringEncoder("v1")},
		{Topic: topic, Key: sarama.StringEncoder("k2")},
		{Topic: topic, Key: sarama.ByteEncoder([]byte{}), Value: sarama.ByteEncoder([]byte{})},
		{Topic: topic, Key: sarama.StringEncoder("k4"), Value: sarama.StringEncoder("v4"), Headers: headers},
		{Topic: topic, Key: sarama.StringEncoder("k5"), Value: sarama.StringEncoder(strings.Repeat("x", 5000))},
	}))
	say(map[string]any{"done": true})
}

func read(address []string, config *sarama.Config, topic string, count int) {
	consumer, err := sarama.NewConsumer(address, config)
	must(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	for taken := 0; taken < count; taken++ {
		sayRecord(<-partition.Messages())
	}
}

type handler struct{}

func (handler) Setup(session sarama.ConsumerGroupSession) error {
	assigned := []int32{}
	for _, partitions := range session.Claims() {
		assigned = append(assigned, partitions...)
	}
	say(map[string]any{"assigned": assigned})
	return nil
}

func (handler) Cleanup(sarama.ConsumerGroupSession) error {
	say(map[string]any{"assigned": []int32{}})
	return nil
}

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			sayRecord(message)
			session.MarkMessage(message, "")
			session.Commit()
			say(map[string]any{"committed": true})
		case <-session.Context().Done():
			return nil
		}
	}
}

func member(address []string, config *sarama.Config, topic, group string) {
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	client, err := sarama.NewConsumerGroup(address, group, config)
	must(err)
	for {
		must(client.Consume(context.Background(), []string{topic}, handler{}))
	}
}

func transact(address []string, config *sarama.Config, topic string) {
	config.Producer.Transaction.ID = "t"
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(address, config)
	must(err)
	must(producer.BeginTxn())
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("v")})
	must(err)
	must(producer.CommitTxn())
}

func admin(address []string, config *sarama.Config, topic string) {
	admin, err := sarama.NewClusterAdmin(address, config)
	must(err)
	defer admin.Close()
	before, after := "100000", "200000"
	must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &before}}, false))
	topics, err := admin.ListTopics()
	must(err)
	check(topics[topic].NumPartitions == 2, "two partitions")
	must(admin.CreatePartitions(topic, 3, nil, false))
	must(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &after}, false))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	must(err)
	check(entries[0].Value == after, "the setting")
	must(admin.DeleteRecords(topic, map[int32]int64{0: 0}))
	_, err = admin.ListConsumerGroups()
	must(err)
	must(admin.DeleteTopic(topic))
	say(map[string]any{"done": true})
}

func sayRecord(record *sarama.ConsumerMessage) {
	headers := [][]any{}
	for _, one := range record.Headers {
		headers = append(headers, []any{string(one.Key), text(one.Value)})
	}
	say(map[string]any{"partition": record.Partition, "offset": record.Offset, "key": text(record.Key), "value": text(record.Value), "headers": headers})
}

func text(data []byte) any {
	if data == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(data)
}

func say(what map[string]any) {
	line, err := json.Marshal(what)
	must(err)
	fmt.Println(string(line))
}

func check(holds bool, what string) {
	if !holds {
		log.Fatal("wrong: ", what)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
