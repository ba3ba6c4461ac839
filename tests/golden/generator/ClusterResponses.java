import java.util.List;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData.EntityData;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData.EntryData;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData.ValueData;
import org.apache.kafka.common.message.DescribeClientQuotasResponseDataJsonConverter;
import org.apache.kafka.common.message.DescribeQuorumResponseData;
import org.apache.kafka.common.message.DescribeQuorumResponseData.PartitionData;
import org.apache.kafka.common.message.DescribeQuorumResponseData.ReplicaState;
import org.apache.kafka.common.message.DescribeQuorumResponseData.TopicData;
import org.apache.kafka.common.message.DescribeQuorumResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Answers to the requests of ClusterRequests. */
final class ClusterResponses {
    private ClusterResponses() { }

    static void addTo(ResponseCases cases) {
        for (short version : Versions.of(ApiKeys.DESCRIBE_CLIENT_QUOTAS)) {
            add(cases, "two entries", version, new DescribeClientQuotasResponseData().setThrottleTimeMs(5)
                .setErrorMessage(null).setEntries(List.of(
                    new EntryData().setEntity(List.of(
                            new EntityData().setEntityType("user").setEntityName("größe"),
                            new EntityData().setEntityType("client-id").setEntityName(null)))
                        .setValues(List.of(
                            new ValueData().setKey("producer_byte_rate").setValue(1048576.5),
                            new ValueData().setKey("request_percentage").setValue(200))),
                    new EntryData().setEntity(List.of(
                            new EntityData().setEntityType("client-id").setEntityName("t")))
                        .setValues(List.of()))));
            add(cases, "refused", version, new DescribeClientQuotasResponseData()
                .setErrorCode(Errors.CLUSTER_AUTHORIZATION_FAILED.code()).setErrorMessage("nicht erlaubt")
                .setEntries(null));
        }
        for (short version : Versions.between(0, ClusterRequests.LAST_QUORUM_WITHOUT_LISTENERS)) {
            // Times are ignorable: version 0 leaves them out.
            ReplicaState leader = new ReplicaState().setReplicaId(1).setLogEndOffset(1L << 33)
                .setLastFetchTimestamp(Rows.NOON).setLastCaughtUpTimestamp(Rows.NOON);
            ReplicaState observer = new ReplicaState().setReplicaId(4).setLogEndOffset(7);
            DescribeQuorumResponseData data = new DescribeQuorumResponseData().setTopics(List.of(
                new TopicData().setTopicName("__cluster_metadata").setPartitions(List.of(
                    new PartitionData().setLeaderId(1).setLeaderEpoch(17).setHighWatermark(1L << 33)
                        .setCurrentVoters(List.of(leader)).setObservers(List.of(observer))))));
            cases.add("a leader and an observer", ApiKeys.DESCRIBE_QUORUM, version, data,
                DescribeQuorumResponseDataJsonConverter.write(data, version));
        }
    }

    private static void add(
            ResponseCases cases, String name, short version, DescribeClientQuotasResponseData data) {
        cases.add(name, ApiKeys.DESCRIBE_CLIENT_QUOTAS, version, data,
            DescribeClientQuotasResponseDataJsonConverter.write(data, version));
    }
}
