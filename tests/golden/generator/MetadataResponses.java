import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseBroker;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.message.MetadataResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Answers to metadata requests: brokers, topics, leaders, errors. */
final class MetadataResponses {
    private final ResponseCases cases;
    private final short version;

    private MetadataResponses(ResponseCases cases, short version) {
        this.cases = cases;
        this.version = version;
    }

    static void addTo(ResponseCases cases) {
        for (short version : Versions.from(ApiKeys.METADATA, 1)) {
            MetadataResponses responses = new MetadataResponses(cases, version);
            responses.add("nothing", new MetadataResponseData());
            responses.addCluster();
            responses.addErrors();
            responses.addMany();
        }
    }

    private void add(String name, MetadataResponseData data) {
        cases.add(name, ApiKeys.METADATA, version, data, MetadataResponseDataJsonConverter.write(data, version));
    }

    private MetadataResponseData cluster() {
        MetadataResponseData data = new MetadataResponseData().setThrottleTimeMs(version >= 3 ? 5 : 0)
            .setClusterId("MkU3OEVBNTcwNTJENDM2Qk").setControllerId(2);
        data.brokers().add(new MetadataResponseBroker().setNodeId(1).setHost("broker-1").setPort(9092));
        data.brokers().add(new MetadataResponseBroker().setNodeId(2).setHost("2001:db8::1").setPort(65_535)
            .setRack("größe"));
        return data;
    }

    private static MetadataResponsePartition partition(int index, int leader) {
        return new MetadataResponsePartition().setPartitionIndex(index).setLeaderId(leader)
            .setLeaderEpoch(100 + index).setReplicaNodes(List.of(1, 2)).setIsrNodes(List.of(2));
    }

    private void addCluster() {
        MetadataResponseData data = cluster();
        data.topics().add(new MetadataResponseTopic().setName("flights").setTopicId(ResponseCases.TOPIC_ID)
            .setPartitions(List.of(partition(0, 1), partition(2, 2), partition(1, 1)
                .setReplicaNodes(List.of()).setIsrNodes(List.of()).setOfflineReplicas(List.of(3, 4)))));
        data.topics().add(new MetadataResponseTopic().setName("__consumer_offsets").setIsInternal(true)
            .setTopicId(new Uuid(1L, -1L)).setPartitions(List.of(partition(0, 2)))
            .setTopicAuthorizedOperations(version >= 8 ? 3840 : Integer.MIN_VALUE));
        if (version >= 8 && version <= 10) {
            data.setClusterAuthorizedOperations(264);
        }
        add("a cluster", data);
    }

    private void addErrors() {
        MetadataResponseData data = cluster().setControllerId(-1).setClusterId(null);
        data.topics().add(new MetadataResponseTopic().setName("missing")
            .setErrorCode(Errors.UNKNOWN_TOPIC_OR_PARTITION.code()));
        data.topics().add(new MetadataResponseTopic().setName("young").setPartitions(List.of(
            partition(0, -1).setLeaderEpoch(-1).setErrorCode(Errors.LEADER_NOT_AVAILABLE.code()))));
        if (version >= 12) {
            data.topics().add(new MetadataResponseTopic().setName(null).setTopicId(ResponseCases.TOPIC_ID)
                .setErrorCode(Errors.UNKNOWN_TOPIC_ID.code()));
        }
        if (version >= 13) {
            data.setErrorCode(Errors.REBOOTSTRAP_REQUIRED.code());
        }
        add("errors", data);
    }

    /** More partitions than one byte of a compact array's length can say. */
    private void addMany() {
        List<MetadataResponsePartition> partitions = new ArrayList<>();
        for (int index = 0; index < 130; index++) {
            partitions.add(new MetadataResponsePartition().setPartitionIndex(index).setLeaderId(1));
        }
        MetadataResponseData data = cluster();
        data.topics().add(new MetadataResponseTopic().setName("wide").setPartitions(partitions));
        if (version == 9) {
            add("130 partitions", data);
        }
    }
}
