import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.DescribeConfigsRequestData;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsRequestDataJsonConverter;
import org.apache.kafka.common.message.FetchRequestDataJsonConverter;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.ListOffsetsRequestDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.DescribeConfigsRequest;
import org.apache.kafka.common.requests.FetchMetadata;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.ListOffsetsRequest;

/** Requests of a consumer, and of those who look at settings. */
final class ReadRequests {
    /** Later versions name topics by id only. */
    static final int LAST_FETCH_BY_NAME = 12;

    private final RequestCases cases;

    private ReadRequests(RequestCases cases) {
        this.cases = cases;
    }

    static void addTo(RequestCases cases) {
        ReadRequests requests = new ReadRequests(cases);
        requests.addDescribeConfigs();
        requests.addListOffsets();
        requests.addFetch();
        requests.addFetchOfASession();
    }

    private void addDescribeConfigs() {
        for (short version : Versions.of(ApiKeys.DESCRIBE_CONFIGS)) {
            DescribeConfigsResource topic = new DescribeConfigsResource()
                .setResourceType(ConfigResource.Type.TOPIC.id()).setResourceName("größe");
            DescribeConfigsResource broker = new DescribeConfigsResource()
                .setResourceType(ConfigResource.Type.BROKER.id()).setResourceName("1");
            add("everything", version, new DescribeConfigsRequestData()
                .setResources(List.of(topic.duplicate().setConfigurationKeys(null))).setIncludeSynonyms(true)
                .setIncludeDocumentation(version >= 3));
            add("some of topic and broker", version, new DescribeConfigsRequestData().setResources(List.of(
                topic.setConfigurationKeys(List.of("cleanup.policy", "min.insync.replicas")),
                broker.setConfigurationKeys(List.of("transaction.max.timeout.ms")))));
        }
    }

    private void add(String name, short version, DescribeConfigsRequestData data) {
        cases.add(name, new DescribeConfigsRequest.Builder(data).build(version),
            DescribeConfigsRequestDataJsonConverter.write(data, version));
    }

    private void addListOffsets() {
        for (short version : Versions.of(ApiKeys.LIST_OFFSETS)) {
            for (IsolationLevel level : IsolationLevel.values()) {
                if (version < 2 && level == IsolationLevel.READ_COMMITTED) {
                    continue;
                }
                ListOffsetsPartition first = new ListOffsetsPartition().setPartitionIndex(0)
                    .setTimestamp(ListOffsetsRequest.LATEST_TIMESTAMP).setCurrentLeaderEpoch(version >= 4 ? 17 : -1);
                ListOffsetsPartition second = new ListOffsetsPartition().setPartitionIndex(8)
                    .setTimestamp(ListOffsetsRequest.EARLIEST_TIMESTAMP);
                List<ListOffsetsTopic> topics = List.of(
                    new ListOffsetsTopic().setName("größe").setPartitions(List.of(first, second)),
                    new ListOffsetsTopic().setName("t").setPartitions(List.of(
                        new ListOffsetsPartition().setTimestamp(Rows.NOON))));
                ListOffsetsRequest request = ListOffsetsRequest.Builder.forConsumer(true, level)
                    .setTargetTimes(topics).setTimeoutMs(version >= 10 ? 30_000 : 0).build(version);
                cases.add(level.toString(), request,
                    ListOffsetsRequestDataJsonConverter.write(request.data(), version));
            }
        }
    }

    private static FetchRequest.PartitionData from(long offset, int leaderEpoch) {
        Optional<Integer> epoch = leaderEpoch < 0 ? Optional.empty() : Optional.of(leaderEpoch);
        return new FetchRequest.PartitionData(
            Uuid.ZERO_UUID, offset, FetchRequest.INVALID_LOG_START_OFFSET, 1 << 20, epoch);
    }

    private static FetchRequest.Builder fetch(short version) {
        Map<TopicPartition, FetchRequest.PartitionData> partitions = new LinkedHashMap<>();
        partitions.put(new TopicPartition("größe", 3), from(1L << 33, version >= 9 ? 17 : -1));
        partitions.put(new TopicPartition("größe", 0), from(0, -1));
        partitions.put(new TopicPartition("t", 0), from(7, -1));
        return FetchRequest.Builder.forConsumer(version, 500, 1, partitions)
            .isolationLevel(IsolationLevel.READ_COMMITTED);
    }

    private void add(String name, short version, FetchRequest.Builder builder) {
        FetchRequest request = builder.build(version);
        cases.add(name, request, FetchRequestDataJsonConverter.write(request.data(), version));
    }

    private void addFetch() {
        for (short version : Versions.between(ApiKeys.FETCH.oldestVersion(), LAST_FETCH_BY_NAME)) {
            add("without a session", version, fetch(version));
            add("few bytes", version, fetch(version).setMaxBytes(4096).isolationLevel(IsolationLevel.READ_UNCOMMITTED));
        }
    }

    private void addFetchOfASession() {
        for (short version : Versions.between(7, LAST_FETCH_BY_NAME)) {
            List<TopicIdPartition> removed = List.of(
                new TopicIdPartition(Uuid.ZERO_UUID, 4, "größe"), new TopicIdPartition(Uuid.ZERO_UUID, 1, "t"));
            add("of a session", version, fetch(version).metadata(new FetchMetadata(4711, 12))
                .removed(removed).rackId(version >= 11 ? "eu-1a" : ""));
        }
    }
}
