import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsSynonym;
import org.apache.kafka.common.message.DescribeConfigsResponseDataJsonConverter;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.message.FetchResponseData.EpochEndOffset;
import org.apache.kafka.common.message.FetchResponseData.FetchableTopicResponse;
import org.apache.kafka.common.message.FetchResponseData.LeaderIdAndEpoch;
import org.apache.kafka.common.message.FetchResponseData.PartitionData;
import org.apache.kafka.common.message.FetchResponseData.SnapshotId;
import org.apache.kafka.common.message.FetchResponseDataJsonConverter;
import org.apache.kafka.common.message.ListOffsetsResponseData;
import org.apache.kafka.common.message.ListOffsetsResponseData.ListOffsetsPartitionResponse;
import org.apache.kafka.common.message.ListOffsetsResponseData.ListOffsetsTopicResponse;
import org.apache.kafka.common.message.ListOffsetsResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Answers to the requests of ReadRequests. */
final class ReadResponses {
    private final ResponseCases cases;

    private ReadResponses(ResponseCases cases) {
        this.cases = cases;
    }

    static void addTo(ResponseCases cases) {
        ReadResponses responses = new ReadResponses(cases);
        responses.addDescribeConfigs();
        responses.addListOffsets();
        responses.addFetch();
    }

    private void addDescribeConfigs() {
        for (short version : Versions.of(ApiKeys.DESCRIBE_CONFIGS)) {
            // Synonyms, type and documentation are ignorable: older versions leave them out.
            DescribeConfigsResourceResult policy = new DescribeConfigsResourceResult().setName("cleanup.policy")
                .setValue("compact").setConfigSource((byte) 1).setConfigType((byte) 7)
                .setDocumentation("compact oder löschen").setSynonyms(List.of(
                    new DescribeConfigsSynonym().setName("cleanup.policy").setValue("compact").setSource((byte) 1),
                    new DescribeConfigsSynonym().setName("log.cleanup.policy").setValue(null).setSource((byte) 5)));
            DescribeConfigsResourceResult secret = new DescribeConfigsResourceResult().setName("ssl.key.password")
                .setValue(null).setReadOnly(true).setIsSensitive(true).setConfigSource((byte) 4).setDocumentation(null);
            DescribeConfigsResponseData data = new DescribeConfigsResponseData().setThrottleTimeMs(5).setResults(List.of(
                new DescribeConfigsResult().setResourceType(ConfigResource.Type.TOPIC.id()).setResourceName("größe")
                    .setErrorMessage(null).setConfigs(List.of(policy, secret)),
                new DescribeConfigsResult().setResourceType(ConfigResource.Type.BROKER.id()).setResourceName("1")
                    .setErrorCode(Errors.CLUSTER_AUTHORIZATION_FAILED.code()).setErrorMessage("nicht erlaubt")));
            cases.add("topic and broker", ApiKeys.DESCRIBE_CONFIGS, version, data,
                DescribeConfigsResponseDataJsonConverter.write(data, version));
        }
    }

    private void addListOffsets() {
        for (short version : Versions.of(ApiKeys.LIST_OFFSETS)) {
            ListOffsetsPartitionResponse end = new ListOffsetsPartitionResponse().setPartitionIndex(0)
                .setOffset(1L << 33).setLeaderEpoch(version >= 4 ? 17 : -1);
            ListOffsetsPartitionResponse found = new ListOffsetsPartitionResponse().setPartitionIndex(8)
                .setOffset(42).setTimestamp(Rows.NOON);
            ListOffsetsPartitionResponse error = new ListOffsetsPartitionResponse().setPartitionIndex(1)
                .setErrorCode(Errors.NOT_LEADER_OR_FOLLOWER.code());
            ListOffsetsResponseData data = new ListOffsetsResponseData().setThrottleTimeMs(version >= 2 ? 5 : 0)
                .setTopics(List.of(
                    new ListOffsetsTopicResponse().setName("größe").setPartitions(List.of(end, found, error)),
                    new ListOffsetsTopicResponse().setName("t")));
            cases.add("two topics", ApiKeys.LIST_OFFSETS, version, data,
                ListOffsetsResponseDataJsonConverter.write(data, version));
        }
    }

    private static PartitionData partition(int index, Errors error) {
        return new PartitionData().setPartitionIndex(index).setErrorCode(error.code()).setHighWatermark(50)
            .setAbortedTransactions(null).setRecords(MemoryRecords.EMPTY);
    }

    private void addFetch() {
        for (short version : Versions.between(ApiKeys.FETCH.oldestVersion(), ReadRequests.LAST_FETCH_BY_NAME)) {
            add("nothing", version, new FetchResponseData());
            add("records", version, records(version));
            add("errors", version, errors(version));
        }
    }

    private static FetchResponseData records(short version) {
        MemoryRecords batch = Batches.build(Compression.NONE, Batches.Producer.of(4711, 3, 0),
            Rows.of(Rows.row(Blob.text("k"), Blob.text("v"))));
        PartitionData full = partition(3, Errors.NONE).setHighWatermark(1L << 33).setLastStableOffset(41)
            .setLogStartOffset(7).setRecords(batch).setAbortedTransactions(List.of(
                new AbortedTransaction().setProducerId(4711).setFirstOffset(12),
                new AbortedTransaction().setProducerId(Long.MAX_VALUE).setFirstOffset(13)));
        PartitionData empty = partition(0, Errors.NONE).setLastStableOffset(50).setAbortedTransactions(List.of());
        FetchResponseData data = new FetchResponseData().setThrottleTimeMs(5).setResponses(List.of(
            new FetchableTopicResponse().setTopic("größe").setPartitions(List.of(full, empty)),
            new FetchableTopicResponse().setTopic("t").setPartitions(List.of(
                partition(1, Errors.NONE).setRecords(null)))));
        return version >= 7 ? data.setSessionId(4711) : data;
    }

    private static FetchResponseData errors(short version) {
        PartitionData moved = partition(0, Errors.NOT_LEADER_OR_FOLLOWER);
        PartitionData near = partition(1, Errors.NONE);
        PartitionData truncated = partition(2, Errors.NONE);
        PartitionData lost = partition(3, Errors.OFFSET_OUT_OF_RANGE).setHighWatermark(-1);
        if (version >= 11) {
            near.setPreferredReadReplica(2);
        }
        if (version >= 12) {
            moved.setCurrentLeader(new LeaderIdAndEpoch().setLeaderId(2).setLeaderEpoch(18));
            truncated.setDivergingEpoch(new EpochEndOffset().setEpoch(16).setEndOffset(40))
                .setSnapshotId(new SnapshotId().setEndOffset(30).setEpoch(15));
        }
        FetchResponseData data = new FetchResponseData().setResponses(List.of(new FetchableTopicResponse()
            .setTopic("größe").setPartitions(List.of(moved, near, truncated, lost))));
        return version >= 7 ? data.setErrorCode(Errors.FETCH_SESSION_ID_NOT_FOUND.code()) : data;
    }

    private void add(String name, short version, FetchResponseData data) {
        JsonNode body = FetchResponseDataJsonConverter.write(data, version);
        for (int topic = 0; topic < data.responses().size(); topic++) {
            List<PartitionData> partitions = data.responses().get(topic).partitions();
            for (int i = 0; i < partitions.size(); i++) {
                putRecords((ObjectNode) body.get("responses").get(topic).get("partitions").get(i), partitions.get(i));
            }
        }
        cases.add(name, ApiKeys.FETCH, version, data, body);
    }

    /** The converter tells no more than how many bytes there are. */
    private static void putRecords(ObjectNode node, PartitionData partition) {
        MemoryRecords records = (MemoryRecords) partition.records();
        node.remove("recordsSizeInBytes");
        node.put("records", records == null ? null : Frames.hex(Batches.toArray(records)));
    }
}
