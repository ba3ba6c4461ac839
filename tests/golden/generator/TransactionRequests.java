import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.AddPartitionsToTxnRequestDataJsonConverter;
import org.apache.kafka.common.message.DescribeProducersRequestData;
import org.apache.kafka.common.message.DescribeProducersRequestData.TopicRequest;
import org.apache.kafka.common.message.DescribeProducersRequestData.TopicRequestCollection;
import org.apache.kafka.common.message.DescribeProducersRequestDataJsonConverter;
import org.apache.kafka.common.message.DescribeTransactionsRequestData;
import org.apache.kafka.common.message.DescribeTransactionsRequestDataJsonConverter;
import org.apache.kafka.common.message.EndTxnRequestData;
import org.apache.kafka.common.message.EndTxnRequestDataJsonConverter;
import org.apache.kafka.common.message.FindCoordinatorRequestData;
import org.apache.kafka.common.message.FindCoordinatorRequestDataJsonConverter;
import org.apache.kafka.common.message.InitProducerIdRequestData;
import org.apache.kafka.common.message.InitProducerIdRequestDataJsonConverter;
import org.apache.kafka.common.message.ListTransactionsRequestData;
import org.apache.kafka.common.message.ListTransactionsRequestDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AddPartitionsToTxnRequest;
import org.apache.kafka.common.requests.DescribeProducersRequest;
import org.apache.kafka.common.requests.DescribeTransactionsRequest;
import org.apache.kafka.common.requests.EndTxnRequest;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.requests.FindCoordinatorRequest.CoordinatorType;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.requests.ListTransactionsRequest;

/** Requests of transactional producers, and of those who look after their transactions. */
final class TransactionRequests {
    /** Later versions are spoken between brokers. */
    static final int LAST_ADD_PARTITIONS_OF_CLIENTS = 3;
    private static final String ID = "größe.7f3a.0";

    private final RequestCases cases;

    private TransactionRequests(RequestCases cases) {
        this.cases = cases;
    }

    static void addTo(RequestCases cases) {
        TransactionRequests requests = new TransactionRequests(cases);
        requests.addInitProducerId();
        requests.addFindCoordinator();
        requests.addAddPartitionsToTxn();
        requests.addEndTxn();
        requests.addDescribeTransactions();
        requests.addListTransactions();
        requests.addDescribeProducers();
    }

    /** Without an id of its own: it asks for the next epoch, and fences whoever has the last one. */
    private void addInitProducerId() {
        for (short version : Versions.of(ApiKeys.INIT_PRODUCER_ID)) {
            InitProducerIdRequestData data = new InitProducerIdRequestData()
                .setTransactionalId(ID).setTransactionTimeoutMs(900_000);
            cases.add("fences", new InitProducerIdRequest.Builder(data).build(version),
                InitProducerIdRequestDataJsonConverter.write(data, version));
        }
    }

    private void addFindCoordinator() {
        for (short version : Versions.from(ApiKeys.FIND_COORDINATOR, 1)) {
            for (CoordinatorType type : List.of(CoordinatorType.TRANSACTION, CoordinatorType.GROUP)) {
                addFindCoordinator("of one " + type, version, type, List.of(ID));
            }
            if (version >= FindCoordinatorRequest.MIN_BATCHED_VERSION) {
                addFindCoordinator("of three", version, CoordinatorType.TRANSACTION, List.of(ID, "", "x".repeat(200)));
            }
        }
    }

    private void addFindCoordinator(String name, short version, CoordinatorType type, List<String> keys) {
        FindCoordinatorRequestData data = new FindCoordinatorRequestData()
            .setKeyType(type.id()).setCoordinatorKeys(keys);
        FindCoordinatorRequest request = new FindCoordinatorRequest.Builder(data).build(version);
        cases.add(name, request, FindCoordinatorRequestDataJsonConverter.write(request.data(), version));
    }

    private void addAddPartitionsToTxn() {
        for (short version : Versions.between(0, LAST_ADD_PARTITIONS_OF_CLIENTS)) {
            for (List<TopicPartition> partitions : List.of(
                    List.of(new TopicPartition("t", 0)),
                    List.of(new TopicPartition("größe", 7), new TopicPartition("t", Integer.MAX_VALUE),
                        new TopicPartition("größe", 0)))) {
                AddPartitionsToTxnRequest request = AddPartitionsToTxnRequest.Builder
                    .forClient(ID, Long.MAX_VALUE, (short) 77, partitions).build(version);
                cases.add(partitions.size() + " partitions", request,
                    AddPartitionsToTxnRequestDataJsonConverter.write(request.data(), version));
            }
        }
    }

    private void addEndTxn() {
        for (short version : Versions.of(ApiKeys.END_TXN)) {
            for (boolean committed : new boolean[] {true, false}) {
                EndTxnRequestData data = new EndTxnRequestData().setTransactionalId(ID)
                    .setProducerId(4711).setProducerEpoch(Short.MAX_VALUE).setCommitted(committed);
                cases.add(committed ? "commit" : "abort", new EndTxnRequest.Builder(data, true).build(version),
                    EndTxnRequestDataJsonConverter.write(data, version));
            }
        }
    }

    private void addDescribeTransactions() {
        for (short version : Versions.of(ApiKeys.DESCRIBE_TRANSACTIONS)) {
            for (List<String> ids : List.of(List.<String>of(), List.of(ID, "b"))) {
                DescribeTransactionsRequestData data = new DescribeTransactionsRequestData().setTransactionalIds(ids);
                cases.add(ids.size() + " ids", new DescribeTransactionsRequest.Builder(data).build(version),
                    DescribeTransactionsRequestDataJsonConverter.write(data, version));
            }
        }
    }

    private void addListTransactions() {
        for (short version : Versions.of(ApiKeys.LIST_TRANSACTIONS)) {
            add("all", version, new ListTransactionsRequestData());
            add("some states", version, new ListTransactionsRequestData()
                .setStateFilters(List.of("Ongoing", "PrepareCommit")).setProducerIdFilters(List.of(0L, Long.MAX_VALUE)));
            if (version >= 1) {
                add("old ones", version, new ListTransactionsRequestData().setDurationFilter(60_000));
            }
            if (version >= 2) {
                add("by pattern", version, new ListTransactionsRequestData().setTransactionalIdPattern("größe\\..*"));
            }
        }
    }

    private void add(String name, short version, ListTransactionsRequestData data) {
        cases.add(name, new ListTransactionsRequest.Builder(data).build(version),
            ListTransactionsRequestDataJsonConverter.write(data, version));
    }

    private void addDescribeProducers() {
        for (short version : Versions.of(ApiKeys.DESCRIBE_PRODUCERS)) {
            DescribeProducersRequestData data = new DescribeProducersRequestData().setTopics(
                new TopicRequestCollection(List.of(
                    new TopicRequest().setName("t").setPartitionIndexes(List.of(0, 5)),
                    new TopicRequest().setName("größe"))));
            cases.add("two topics", new DescribeProducersRequest.Builder(data).build(version),
                DescribeProducersRequestDataJsonConverter.write(data, version));
        }
    }
}
