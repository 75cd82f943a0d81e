// What Pulsar's Go client does, step by step; a line each. Argument: HOST:PORT of Pulsar's listener.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const base = "persistent://public/default/go-"
const wait = 30 * time.Second
const definition = `{"type":"record","name":"Item","fields":[{"name":"count","type":"int"}]}`

var failed = false

func step(name string, work func()) {
	begun := time.Now()
	defer func() {
		if fault := recover(); fault != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", name, fault)
			return
		}
		fmt.Printf("ok %s %d ms\n", name, time.Since(begun).Milliseconds())
	}()
	work()
}

func check(holds bool, what string, more ...any) {
	if !holds {
		panic(fmt.Sprintf(what, more...))
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "%v", err)
	return value
}

type client struct{ pulsar.Client }

func (c client) produce(topic string, options pulsar.ProducerOptions) pulsar.Producer {
	options.Topic = topic
	return must(c.CreateProducer(options))
}

func (c client) consume(topic string, kind pulsar.SubscriptionType, options pulsar.ConsumerOptions) pulsar.Consumer {
	if options.TopicsPattern == "" {
		options.Topic = topic
	}
	options.SubscriptionName, options.Type = "s", kind
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	return must(c.Subscribe(options))
}

func send(p pulsar.Producer, message pulsar.ProducerMessage) pulsar.MessageID {
	return must(p.Send(context.Background(), &message))
}

func value(text string) pulsar.ProducerMessage { return pulsar.ProducerMessage{Payload: []byte(text)} }

func take(c pulsar.Consumer, within time.Duration) pulsar.Message {
	until, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	message, err := c.Receive(until)
	if err != nil {
		return nil
	}
	return message
}

func next(c pulsar.Consumer) pulsar.Message {
	message := take(c, wait)
	check(message != nil, "no message within 30 s")
	return message
}

func (c client) exclusive() {
	consumer := c.consume(base+"e", pulsar.Exclusive, pulsar.ConsumerOptions{})
	defer consumer.Close()
	_, err := c.Subscribe(pulsar.ConsumerOptions{Topic: base + "e", SubscriptionName: "s", Type: pulsar.Exclusive})
	check(err != nil, "a second exclusive consumer")
	producer := c.produce(base+"e", pulsar.ProducerOptions{})
	defer producer.Close()
	for i := range 100 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	check(producer.FlushWithCtx(context.Background()) == nil, "flush")
	for i := range 100 {
		message := next(consumer)
		check(string(message.Payload()) == fmt.Sprint(i), "order at %d", i)
		check(consumer.Ack(message) == nil, "ack")
	}
}

func (c client) sharedOut(kind pulsar.SubscriptionType, name string) {
	topic := base + name
	consumers := []pulsar.Consumer{c.consume(topic, kind, pulsar.ConsumerOptions{Name: "a"}), c.consume(topic, kind, pulsar.ConsumerOptions{Name: "b"})}
	producer := c.produce(topic, pulsar.ProducerOptions{BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	defer producer.Close()
	for i := range 200 {
		message := &pulsar.ProducerMessage{Key: fmt.Sprint("k", i%8), Payload: []byte(fmt.Sprint(i))}
		producer.SendAsync(context.Background(), message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	check(producer.FlushWithCtx(context.Background()) == nil, "flush")
	seen, owners := map[string]bool{}, map[string]int{}
	for until := time.Now().Add(wait); len(seen) < 200 && time.Now().Before(until); {
		for number, consumer := range consumers {
			for message := take(consumer, 20*time.Millisecond); message != nil; message = take(consumer, 20*time.Millisecond) {
				check(!seen[string(message.Payload())], "twice")
				seen[string(message.Payload())] = true
				at, known := owners[message.Key()]
				check(kind != pulsar.KeyShared || !known || at == number, "a key at two")
				owners[message.Key()] = number
				check(consumer.Ack(message) == nil, "ack")
			}
		}
	}
	check(len(seen) == 200, "only %d", len(seen))
	for _, consumer := range consumers {
		consumer.Close()
	}
}

func (c client) delayed() {
	consumer := c.consume(base+"d", pulsar.Shared, pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := c.produce(base+"d", pulsar.ProducerOptions{})
	defer producer.Close()
	begun := time.Now()
	send(producer, pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: time.Second})
	next(consumer)
	check(time.Since(begun) >= 980*time.Millisecond, "too early")
}

func (c client) retryAndDeadLetter() {
	policy := &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: base + "r-dead", RetryLetterTopic: base + "r-retry", InitialSubscriptionName: "i"}
	consumer := c.consume(base+"r", pulsar.Shared, pulsar.ConsumerOptions{DLQ: policy, RetryEnable: true})
	defer consumer.Close()
	producer := c.produce(base+"r", pulsar.ProducerOptions{})
	defer producer.Close()
	send(producer, value("x"))
	for range 3 {
		consumer.ReconsumeLater(next(consumer), 100*time.Millisecond)
	}
	dead := must(c.Subscribe(pulsar.ConsumerOptions{Topic: base + "r-dead", SubscriptionName: "i"}))
	defer dead.Close()
	check(string(next(dead).Payload()) == "x", "another message")
}

func (c client) chunks() {
	consumer := c.consume(base+"c", pulsar.Exclusive, pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := c.produce(base+"c", pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true})
	defer producer.Close()
	large := bytes.Repeat([]byte("0123456789abcdef"), 12<<16)
	send(producer, pulsar.ProducerMessage{Payload: large})
	check(bytes.Equal(next(consumer).Payload(), large), "another value")
}

func (c client) acknowledging() {
	options := pulsar.ConsumerOptions{AckWithResponse: true, EnableBatchIndexAcknowledgment: true, NackRedeliveryDelay: 100 * time.Millisecond}
	consumer := c.consume(base+"a", pulsar.Shared, options)
	producer := c.produce(base+"a", pulsar.ProducerOptions{BatchingMaxMessages: 10, CompressionType: pulsar.ZSTD})
	defer producer.Close()
	for i := range 10 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	check(producer.FlushWithCtx(context.Background()) == nil, "flush")
	for i := range 10 {
		message := next(consumer)
		check(i > 1 || consumer.Ack(message) == nil, "ack")
	}
	consumer.Close()
	consumer = c.consume(base+"a", pulsar.Shared, options)
	defer consumer.Close()
	for i := 2; i < 10; i++ {
		message := next(consumer)
		check(string(message.Payload()) == fmt.Sprint(i), "at %d is %s", i, message.Payload())
		check(consumer.Ack(message) == nil, "ack")
	}
	send(producer, value("x"))
	for i := range 3 {
		message := next(consumer)
		check(message.RedeliveryCount() == uint32(i), "count %d at %d", message.RedeliveryCount(), i)
		if i < 2 {
			consumer.Nack(message)
		} else {
			check(consumer.Ack(message) == nil, "ack")
		}
	}
	check(take(consumer, 300*time.Millisecond) == nil, "again after its acknowledgement")
}

func (c client) schemas(schema pulsar.Schema, name string) {
	type item struct {
		Count int `json:"count" avro:"count"`
	}
	producer := c.produce(base+name, pulsar.ProducerOptions{Schema: schema})
	defer producer.Close()
	consumer := c.consume(base+name, pulsar.Exclusive, pulsar.ConsumerOptions{Schema: schema})
	defer consumer.Close()
	send(producer, pulsar.ProducerMessage{Value: &item{Count: 3}})
	var found item
	check(next(consumer).GetSchemaValue(&found) == nil && found.Count == 3, "value %v", found)
	_, err := c.CreateProducer(pulsar.ProducerOptions{Topic: base + name, Schema: pulsar.NewStringSchema(nil)})
	check(err != nil, "another type is taken")
}

func (c client) readerAndTableView() {
	topic := base + "t"
	text := pulsar.NewStringSchema(nil)
	producer := c.produce(topic, pulsar.ProducerOptions{Schema: text})
	defer producer.Close()
	send(producer, pulsar.ProducerMessage{Key: "a", Value: "1"})
	id := send(producer, pulsar.ProducerMessage{Key: "a", Value: "2"})
	send(producer, pulsar.ProducerMessage{Key: "b", Value: "3"})
	reader := must(c.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: id}))
	defer reader.Close()
	check(reader.HasNext(), "nothing to read")
	until, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	check(string(must(reader.Next(until)).Payload()) == "3" && !reader.HasNext(), "reader")
	view := must(c.CreateTableView(pulsar.TableViewOptions{Topic: topic, Schema: text, SchemaValueType: reflect.TypeOf(new(string))}))
	defer view.Close()
	check(view.Size() == 2, "table view of %d", view.Size())
}

func (c client) pattern() {
	options := pulsar.ConsumerOptions{TopicsPattern: base + "pat-.*", AutoDiscoveryPeriod: 500 * time.Millisecond}
	first := c.produce(base+"pat-1", pulsar.ProducerOptions{})
	defer first.Close()
	consumer := c.consume("", pulsar.Shared, options)
	defer consumer.Close()
	second := c.produce(base+"pat-2", pulsar.ProducerOptions{})
	defer second.Close()
	send(first, value("x"))
	send(second, value("y"))
	from := map[string]bool{}
	for range 2 {
		message := next(consumer)
		from[message.Topic()] = true
		check(consumer.Ack(message) == nil, "ack")
	}
	check(len(from) == 2, "from %v", from)
}

func (c client) seek() {
	producer := c.produce(base+"s", pulsar.ProducerOptions{})
	defer producer.Close()
	ids := []pulsar.MessageID{}
	for i := range 5 {
		ids = append(ids, send(producer, value(fmt.Sprint(i))))
	}
	consumer := c.consume(base+"s", pulsar.Exclusive, pulsar.ConsumerOptions{StartMessageIDInclusive: true})
	defer consumer.Close()
	for range 5 {
		check(consumer.Ack(next(consumer)) == nil, "ack")
	}
	check(consumer.Seek(ids[2]) == nil, "seek")
	for i := 2; i < 5; i++ {
		message := next(consumer)
		check(string(message.Payload()) == fmt.Sprint(i), "at %d is %s", i, message.Payload())
	}
	last := must(consumer.GetLastMessageIDs())
	check(len(last) == 1 && last[0].EntryID() == ids[4].EntryID(), "last id %v", last)
	check(consumer.Unsubscribe() == nil, "unsubscribe")
}

func (c client) live() {
	topic := "non-persistent://public/default/go-live"
	consumer := c.consume(topic, pulsar.Shared, pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := c.produce(topic, pulsar.ProducerOptions{})
	defer producer.Close()
	for range 100 {
		send(producer, value("x"))
		if take(consumer, 100*time.Millisecond) != nil {
			return
		}
	}
	panic("nothing came")
}

func main() {
	quiet := logrus.New()
	quiet.SetLevel(logrus.PanicLevel)
	options := pulsar.ClientOptions{URL: "pulsar://" + os.Args[1], Logger: plog.NewLoggerWithLogrus(quiet)}
	c := client{must(pulsar.NewClient(options))}
	step("exclusive", c.exclusive)
	step("Failover", func() { c.sharedOut(pulsar.Failover, "failover") })
	step("Shared", func() { c.sharedOut(pulsar.Shared, "shared") })
	step("Key_Shared", func() { c.sharedOut(pulsar.KeyShared, "key-shared") })
	step("delayed", c.delayed)
	step("retry and dead letter", c.retryAndDeadLetter)
	step("chunks", c.chunks)
	step("acknowledgement: of a batch in part, negative", c.acknowledging)
	step("json schema", func() { c.schemas(pulsar.NewJSONSchema(definition, nil), "j") })
	step("avro schema", func() { c.schemas(pulsar.NewAvroSchema(definition, nil), "av") })
	step("reader, table view", c.readerAndTableView)
	step("pattern, a new topic", c.pattern)
	step("seek", c.seek)
	step("non-persistent", c.live)
	step("transactions are refused at once", func() {
		options.EnableTransaction = true
		begun := time.Now()
		_, err := pulsar.NewClient(options)
		check(err != nil && strings.Contains(err.Error(), "doesn't enable"), "%v", err)
		check(time.Since(begun) < 10*time.Second, "late")
	})
	c.Close()
	if failed {
		os.Exit(1)
	}
}
