import java.util.List;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.message.ProduceResponseData.BatchIndexAndErrorMessage;
import org.apache.kafka.common.message.ProduceResponseData.LeaderIdAndEpoch;
import org.apache.kafka.common.message.ProduceResponseData.NodeEndpoint;
import org.apache.kafka.common.message.ProduceResponseData.PartitionProduceResponse;
import org.apache.kafka.common.message.ProduceResponseData.TopicProduceResponse;
import org.apache.kafka.common.message.ProduceResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Answers to produce requests: offsets, errors, record errors, new leaders. */
final class ProduceResponses {
    private final ResponseCases cases;
    private final short version;

    private ProduceResponses(ResponseCases cases, short version) {
        this.cases = cases;
        this.version = version;
    }

    static void addTo(ResponseCases cases) {
        for (short version : Versions.of(ApiKeys.PRODUCE)) {
            ProduceResponses responses = new ProduceResponses(cases, version);
            responses.addSuccess();
            responses.addErrors();
            responses.addRecordErrors();
            if (version >= 10) {
                responses.addNewLeaders();
            }
        }
    }

    private void add(String name, ProduceResponseData data) {
        cases.add(name, ApiKeys.PRODUCE, version, data, ProduceResponseDataJsonConverter.write(data, version));
    }

    private static ProduceResponseData responseOf(PartitionProduceResponse... partitions) {
        ProduceResponseData data = new ProduceResponseData();
        data.responses().add(new TopicProduceResponse().setName("flights")
            .setTopicId(ResponseCases.TOPIC_ID).setPartitionResponses(List.of(partitions)));
        return data;
    }

    private static PartitionProduceResponse partition(int index, Errors error, long baseOffset) {
        return new PartitionProduceResponse().setIndex(index).setErrorCode(error.code())
            .setBaseOffset(baseOffset);
    }

    private void addSuccess() {
        add("nothing", new ProduceResponseData());
        add("one partition", responseOf(partition(0, Errors.NONE, 42)));
        ProduceResponseData two = responseOf(
            partition(3, Errors.NONE, 0), partition(0, Errors.NONE, Long.MAX_VALUE)
                .setLogAppendTimeMs(1_700_000_000_123L).setLogStartOffset(7));
        two.responses().add(new TopicProduceResponse().setName("other")
            .setTopicId(new org.apache.kafka.common.Uuid(-1L, 5L))
            .setPartitionResponses(List.of(partition(1, Errors.NONE, 1L << 33))));
        add("two topics, throttled", two.setThrottleTimeMs(1500));
    }

    private void addErrors() {
        add("an error with a message", responseOf(partition(2, Errors.MESSAGE_TOO_LARGE, -1)
            .setErrorMessage(version >= 8 ? "zu groß: 1 > 0" : null)));
        add("an unknown error", responseOf(partition(2, Errors.UNKNOWN_SERVER_ERROR, -1)));
    }

    private void addRecordErrors() {
        List<BatchIndexAndErrorMessage> errors = List.of(
            new BatchIndexAndErrorMessage().setBatchIndex(0).setBatchIndexErrorMessage("invalid timestamp"),
            new BatchIndexAndErrorMessage().setBatchIndex(199).setBatchIndexErrorMessage(null));
        // recordErrors is ignorable: older versions leave it out.
        add("record errors", responseOf(
            partition(0, Errors.INVALID_RECORD, -1).setRecordErrors(errors).setErrorMessage("two records"),
            partition(1, Errors.NONE, 5)));
    }

    private void addNewLeaders() {
        ProduceResponseData data = responseOf(
            partition(0, Errors.NOT_LEADER_OR_FOLLOWER, -1)
                .setCurrentLeader(new LeaderIdAndEpoch().setLeaderId(2).setLeaderEpoch(17)),
            partition(1, Errors.NOT_LEADER_OR_FOLLOWER, -1)
                .setCurrentLeader(new LeaderIdAndEpoch().setLeaderId(-1).setLeaderEpoch(18)),
            partition(2, Errors.NONE, 3));
        data.nodeEndpoints().add(new NodeEndpoint().setNodeId(2).setHost("broker-2.größe.example")
            .setPort(65_535).setRack("eu-1a"));
        data.nodeEndpoints().add(new NodeEndpoint().setNodeId(Integer.MAX_VALUE).setHost("::1")
            .setPort(9092).setRack(null));
        add("new leaders", data);
    }
}
