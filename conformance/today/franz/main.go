// What a user of franz-go writes, with its default settings; see ../README.md.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var ctx = context.Background()

func main() {
	seeds := kgo.SeedBrokers(os.Args[2])
	switch os.Args[1] {
	case "produce":
		produce(seeds, os.Args[3], os.Args[4])
	case "read":
		count, err := strconv.Atoi(os.Args[4])
		must(err)
		read(seeds, os.Args[3], count)
	case "member":
		member(seeds, os.Args[3], os.Args[4], kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second))
	case "modern":
		member(seeds, os.Args[3], os.Args[4], kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case "share":
		share(seeds, os.Args[3], os.Args[4])
	case "admin":
		admin(seeds, os.Args[3])
	case "transact":
		transact(seeds, os.Args[3])
	default:
		log.Fatal("unknown command ", os.Args[1])
	}
}

func produce(seeds kgo.Opt, topic, codec string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client, err := kgo.NewClient(seeds, kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(err)
	defer client.Close()
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte{}}}
	records := []*kgo.Record{
		{Topic: topic, Key: []byte("k0"), Value: []byte("v0")},
		{Topic: topic, Value: []byte("v1")},
		{Topic: topic, Key: []byte("k2")},
		{Topic: topic, Key: []byte{}, Value: []byte{}},
		{Topic: topic, Key: []byte("k4"), Value: []byte("v4"), Headers: headers},
		{Topic: topic, Key: []byte("k5"), Value: []byte(strings.Repeat("x", 5000))},
	}
	must(client.ProduceSync(ctx, records...).FirstErr())
	say(map[string]any{"done": true})
}

func read(seeds kgo.Opt, topic string, count int) {
	offsets := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(seeds, kgo.ConsumePartitions(offsets))
	must(err)
	defer client.Close()
	for taken := 0; taken < count; {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			sayRecord(record)
			taken++
		})
	}
}

func member(seeds kgo.Opt, topic, group string, more ...kgo.Opt) {
	var lock sync.Mutex
	mine := map[int32]bool{}
	change := func(is bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			for _, one := range changed[topic] {
				if is {
					mine[one] = true
				} else {
					delete(mine, one)
				}
			}
			assigned := []int{}
			for one := range mine {
				assigned = append(assigned, int(one))
			}
			sort.Ints(assigned)
			say(map[string]any{"assigned": assigned})
		}
	}
	client, err := kgo.NewClient(append(more, seeds, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))...)
	must(err)
	for {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(sayRecord)
		if !fetches.Empty() {
			if client.CommitUncommittedOffsets(ctx) == nil {
				say(map[string]any{"committed": true})
			}
		}
	}
}

func transact(seeds kgo.Opt, topic string) {
	client, err := kgo.NewClient(seeds, kgo.TransactionalID("t"))
	must(err)
	must(client.BeginTransaction())
	must(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
	must(client.EndTransaction(ctx, kgo.TryCommit))
}

func admin(seeds kgo.Opt, topic string) {
	client, err := kgo.NewClient(seeds)
	must(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	before := "100000"
	_, err = admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &before}, topic)
	must(err)
	topics, err := admin.ListTopics(ctx, topic)
	must(err)
	check(len(topics[topic].Partitions) == 2, "two partitions")
	grown, err := admin.UpdatePartitions(ctx, 3, topic)
	must(err)
	must(grown.Error())
	after := "200000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &after}}, topic)
	must(err)
	must(altered[0].Err)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	must(err)
	found := ""
	for _, one := range configs[0].Configs {
		if one.Key == "retention.ms" {
			found = one.MaybeValue()
		}
	}
	check(found == after, "the setting")
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 0})
	deleted, err := admin.DeleteRecords(ctx, offsets)
	must(err)
	must(deleted.Error())
	_, err = admin.ListGroups(ctx)
	must(err)
	gone, err := admin.DeleteTopics(ctx, topic)
	must(err)
	must(gone.Error())
	say(map[string]any{"done": true})
}

func sayRecord(record *kgo.Record) {
	headers := [][]any{}
	for _, one := range record.Headers {
		headers = append(headers, []any{one.Key, text(one.Value)})
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
