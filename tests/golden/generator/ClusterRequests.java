import java.util.List;
import org.apache.kafka.common.message.DescribeClientQuotasRequestData;
import org.apache.kafka.common.message.DescribeClientQuotasRequestData.ComponentData;
import org.apache.kafka.common.message.DescribeClientQuotasRequestDataJsonConverter;
import org.apache.kafka.common.message.DescribeQuorumRequestData;
import org.apache.kafka.common.message.DescribeQuorumRequestData.PartitionData;
import org.apache.kafka.common.message.DescribeQuorumRequestData.TopicData;
import org.apache.kafka.common.message.DescribeQuorumRequestDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.requests.DescribeClientQuotasRequest;
import org.apache.kafka.common.requests.DescribeQuorumRequest;

/** What is asked of a cluster as a whole: quotas, and the controllers. */
final class ClusterRequests {
    static final int LAST_QUORUM_WITHOUT_LISTENERS = 1;

    private ClusterRequests() { }

    static void addTo(RequestCases cases) {
        for (short version : Versions.of(ApiKeys.DESCRIBE_CLIENT_QUOTAS)) {
            DescribeClientQuotasRequest all =
                new DescribeClientQuotasRequest.Builder(ClientQuotaFilter.all()).build(version);
            cases.add("everything", all, write(all, version));
            ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(List.of(
                ClientQuotaFilterComponent.ofEntity("client-id", "größe"),
                ClientQuotaFilterComponent.ofDefaultEntity("user"),
                ClientQuotaFilterComponent.ofEntityType("ip")));
            DescribeClientQuotasRequest some = new DescribeClientQuotasRequest.Builder(filter).build(version);
            cases.add("of three entities", some, write(some, version));
        }
        for (short version : Versions.between(0, LAST_QUORUM_WITHOUT_LISTENERS)) {
            DescribeQuorumRequestData data = new DescribeQuorumRequestData().setTopics(List.of(
                new TopicData().setTopicName("__cluster_metadata")
                    .setPartitions(List.of(new PartitionData().setPartitionIndex(0)))));
            cases.add("the controllers", new DescribeQuorumRequest.Builder(data).build(version),
                DescribeQuorumRequestDataJsonConverter.write(data, version));
        }
    }

    private static com.fasterxml.jackson.databind.JsonNode write(DescribeClientQuotasRequest request, short version) {
        return DescribeClientQuotasRequestDataJsonConverter.write(
            (DescribeClientQuotasRequestData) request.data(), version);
    }
}
