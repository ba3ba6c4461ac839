import java.util.List;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseData;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResult;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResultCollection;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResult;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseDataJsonConverter;
import org.apache.kafka.common.message.DescribeProducersResponseData;
import org.apache.kafka.common.message.DescribeProducersResponseData.PartitionResponse;
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState;
import org.apache.kafka.common.message.DescribeProducersResponseData.TopicResponse;
import org.apache.kafka.common.message.DescribeProducersResponseDataJsonConverter;
import org.apache.kafka.common.message.DescribeTransactionsResponseData;
import org.apache.kafka.common.message.DescribeTransactionsResponseData.TopicData;
import org.apache.kafka.common.message.DescribeTransactionsResponseData.TransactionState;
import org.apache.kafka.common.message.DescribeTransactionsResponseDataJsonConverter;
import org.apache.kafka.common.message.EndTxnResponseData;
import org.apache.kafka.common.message.EndTxnResponseDataJsonConverter;
import org.apache.kafka.common.message.FindCoordinatorResponseData;
import org.apache.kafka.common.message.FindCoordinatorResponseData.Coordinator;
import org.apache.kafka.common.message.FindCoordinatorResponseDataJsonConverter;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.message.InitProducerIdResponseDataJsonConverter;
import org.apache.kafka.common.message.ListTransactionsResponseData;
import org.apache.kafka.common.message.ListTransactionsResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Answers to the requests of TransactionRequests. */
final class TransactionResponses {
    private static final String ID = "größe.7f3a.0";

    private final ResponseCases cases;

    private TransactionResponses(ResponseCases cases) {
        this.cases = cases;
    }

    static void addTo(ResponseCases cases) {
        TransactionResponses responses = new TransactionResponses(cases);
        responses.addInitProducerId();
        responses.addFindCoordinator();
        responses.addFindCoordinators();
        responses.addAddPartitionsToTxn();
        responses.addEndTxn();
        responses.addDescribeTransactions();
        responses.addListTransactions();
        responses.addDescribeProducers();
    }

    private void addInitProducerId() {
        for (short version : Versions.of(ApiKeys.INIT_PRODUCER_ID)) {
            Errors error = version >= 4 ? Errors.PRODUCER_FENCED : Errors.INVALID_PRODUCER_EPOCH;
            InitProducerIdResponseData data = new InitProducerIdResponseData()
                .setErrorCode(error.code()).setProducerEpoch((short) -1);
            cases.add("fenced", ApiKeys.INIT_PRODUCER_ID, version, data,
                InitProducerIdResponseDataJsonConverter.write(data, version));
        }
    }

    private void add(String name, short version, FindCoordinatorResponseData data) {
        cases.add(name, ApiKeys.FIND_COORDINATOR, version, data,
            FindCoordinatorResponseDataJsonConverter.write(data, version));
    }

    private void addFindCoordinator() {
        for (short version : Versions.between(1, 3)) {
            add("found", version, new FindCoordinatorResponseData().setThrottleTimeMs(12).setNodeId(2)
                .setHost("größe.example").setPort(65_535).setErrorMessage("NONE"));
            add("none yet", version, new FindCoordinatorResponseData().setNodeId(-1).setPort(-1)
                .setErrorCode(Errors.COORDINATOR_NOT_AVAILABLE.code()).setErrorMessage(null));
        }
    }

    private void addFindCoordinators() {
        for (short version : Versions.from(ApiKeys.FIND_COORDINATOR, 4)) {
            add("none asked", version, new FindCoordinatorResponseData());
            add("found and not", version, new FindCoordinatorResponseData().setThrottleTimeMs(12).setCoordinators(List.of(
                new Coordinator().setKey(ID).setNodeId(2).setHost("größe.example").setPort(65_535),
                new Coordinator().setKey("b").setNodeId(-1).setPort(-1).setErrorMessage(null)
                    .setErrorCode(Errors.COORDINATOR_NOT_AVAILABLE.code()),
                new Coordinator().setKey("").setNodeId(-1).setPort(-1).setErrorMessage("nicht erlaubt: größe")
                    .setErrorCode(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code()))));
        }
    }

    private static AddPartitionsToTxnPartitionResult result(int partition, Errors error) {
        return new AddPartitionsToTxnPartitionResult().setPartitionIndex(partition)
            .setPartitionErrorCode(error.code());
    }

    private void addAddPartitionsToTxn() {
        for (short version : Versions.between(0, TransactionRequests.LAST_ADD_PARTITIONS_OF_CLIENTS)) {
            AddPartitionsToTxnResponseData data = new AddPartitionsToTxnResponseData().setThrottleTimeMs(8);
            AddPartitionsToTxnPartitionResultCollection two = new AddPartitionsToTxnPartitionResultCollection();
            two.add(result(0, Errors.NONE));
            two.add(result(Integer.MAX_VALUE, Errors.CONCURRENT_TRANSACTIONS));
            data.resultsByTopicV3AndBelow().add(
                new AddPartitionsToTxnTopicResult().setName("größe").setResultsByPartition(two));
            data.resultsByTopicV3AndBelow().add(new AddPartitionsToTxnTopicResult().setName("t"));
            cases.add("two topics", ApiKeys.ADD_PARTITIONS_TO_TXN, version, data,
                AddPartitionsToTxnResponseDataJsonConverter.write(data, version));
        }
    }

    private void addEndTxn() {
        for (short version : Versions.of(ApiKeys.END_TXN)) {
            // producerId and producerEpoch are ignorable: older versions leave them out.
            add("next epoch", version, new EndTxnResponseData().setThrottleTimeMs(3)
                .setProducerId(4711).setProducerEpoch((short) 4));
            add("an error", version, new EndTxnResponseData().setErrorCode(Errors.INVALID_TXN_STATE.code()));
        }
    }

    private void add(String name, short version, EndTxnResponseData data) {
        cases.add(name, ApiKeys.END_TXN, version, data, EndTxnResponseDataJsonConverter.write(data, version));
    }

    private void addDescribeTransactions() {
        for (short version : Versions.of(ApiKeys.DESCRIBE_TRANSACTIONS)) {
            DescribeTransactionsResponseData data = new DescribeTransactionsResponseData().setThrottleTimeMs(5);
            TransactionState ongoing = new TransactionState().setTransactionalId(ID).setTransactionState("Ongoing")
                .setTransactionTimeoutMs(900_000).setTransactionStartTimeMs(Rows.NOON).setProducerId(Long.MAX_VALUE)
                .setProducerEpoch((short) 77);
            ongoing.topics().add(new TopicData().setTopic("größe").setPartitions(List.of(0, 12, 1)));
            ongoing.topics().add(new TopicData().setTopic("t").setPartitions(List.of(3)));
            data.transactionStates().add(ongoing);
            data.transactionStates().add(new TransactionState().setTransactionalId("b").setTransactionState("Empty")
                .setTransactionTimeoutMs(60_000).setTransactionStartTimeMs(-1).setProducerId(0));
            data.transactionStates().add(new TransactionState().setTransactionalId("missing")
                .setErrorCode(Errors.TRANSACTIONAL_ID_NOT_FOUND.code()));
            cases.add("three ids", ApiKeys.DESCRIBE_TRANSACTIONS, version, data,
                DescribeTransactionsResponseDataJsonConverter.write(data, version));
        }
    }

    private void add(String name, short version, ListTransactionsResponseData data) {
        cases.add(name, ApiKeys.LIST_TRANSACTIONS, version, data,
            ListTransactionsResponseDataJsonConverter.write(data, version));
    }

    private void addListTransactions() {
        for (short version : Versions.of(ApiKeys.LIST_TRANSACTIONS)) {
            add("two", version, new ListTransactionsResponseData().setThrottleTimeMs(5)
                .setUnknownStateFilters(List.of("Ungoing")).setTransactionStates(List.of(
                    new ListTransactionsResponseData.TransactionState().setTransactionalId(ID)
                        .setProducerId(4711).setTransactionState("Ongoing"),
                    new ListTransactionsResponseData.TransactionState().setTransactionalId("b")
                        .setProducerId(0).setTransactionState("CompleteAbort"))));
            add("an error", version, new ListTransactionsResponseData()
                .setErrorCode(Errors.COORDINATOR_LOAD_IN_PROGRESS.code()));
        }
    }

    private void addDescribeProducers() {
        for (short version : Versions.of(ApiKeys.DESCRIBE_PRODUCERS)) {
            ProducerState open = new ProducerState().setProducerId(4711).setProducerEpoch(3).setLastSequence(99)
                .setLastTimestamp(Rows.NOON).setCoordinatorEpoch(6).setCurrentTxnStartOffset(1L << 33);
            ProducerState idle = new ProducerState().setProducerId(Long.MAX_VALUE).setProducerEpoch(0)
                .setCoordinatorEpoch(-1);
            DescribeProducersResponseData data = new DescribeProducersResponseData().setThrottleTimeMs(5)
                .setTopics(List.of(
                    new TopicResponse().setName("größe").setPartitions(List.of(
                        new PartitionResponse().setPartitionIndex(0).setActiveProducers(List.of(open, idle)),
                        new PartitionResponse().setPartitionIndex(5).setErrorMessage("not here")
                            .setErrorCode(Errors.NOT_LEADER_OR_FOLLOWER.code()))),
                    new TopicResponse().setName("t")));
            cases.add("two topics", ApiKeys.DESCRIBE_PRODUCERS, version, data,
                DescribeProducersResponseDataJsonConverter.write(data, version));
        }
    }
}
