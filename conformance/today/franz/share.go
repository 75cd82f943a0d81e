// What a user of share groups in franz-go writes; see ../README.md.
package main

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const shared = 20

func share(seeds kgo.Opt, topic, group string) {
	client, err := kgo.NewClient(seeds, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(err)
	defer client.Close()
	beginEarly(client, group)
	for number := range shared {
		must(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(number))}).FirstErr())
	}
	consumeShared(seeds, topic, group)
	admin := kadm.NewClient(client)
	groups, err := admin.DescribeShareGroups(ctx, group)
	must(err)
	must(groups.Error())
	described, err := admin.DescribeShareGroupOffsets(ctx, group)
	must(err)
	must(described.Error())
	at, isThere := described[group].Offsets[topic][0]
	check(isThere && at.StartOffset == shared, "all acknowledged")
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 5})
	altered, err := admin.AlterShareGroupOffsets(ctx, group, offsets)
	must(err)
	must(altered.Error())
	deleted, err := admin.DeleteGroups(ctx, group)
	must(err)
	must(deleted.Error())
	say(map[string]any{"done": true})
}

func beginEarly(client *kgo.Client, group string) {
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeGroupConfig
	resource.ResourceName = group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name = "share.auto.offset.reset"
	config.Value = kmsg.StringPtr("earliest")
	resource.Configs = append(resource.Configs, config)
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, client)
	must(err)
	check(answer.Resources[0].ErrorCode == 0, "the group's setting")
}

// Releases each third record once, rejects the last, and accepts the others.
func consumeShared(seeds kgo.Opt, topic, group string) {
	client, err := kgo.NewClient(seeds, kgo.ShareGroup(group), kgo.ConsumeTopics(topic),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { must(results.Error()) }))
	must(err)
	defer client.Close()
	deliveries := map[int64]int32{}
	for done := 0; done < shared; {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			deliveries[record.Offset]++
			check(record.DeliveryCount() == deliveries[record.Offset], "delivery count")
			switch {
			case record.Offset%3 == 0 && record.DeliveryCount() == 1:
				record.Ack(kgo.AckRelease)
				return
			case record.Offset == shared-1:
				record.Ack(kgo.AckReject)
			default:
				record.Ack(kgo.AckAccept)
			}
			done++
		})
		must(client.FlushAcks(ctx))
	}
}
