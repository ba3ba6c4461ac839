"""transaction.version of a real broker is downgraded while transactions are open."""

import pytest

from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.transactions.client import Outcome, TransactionClient
from spark_kafka_sink.transactions.model import TaskTransaction
from tests.broker.creating import producer_for
from tests.broker.processes import eventually
from tests.broker.test_transactions import committed, rows, write
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS


@pytest.mark.parametrize("version", [0, 1])
def test_a_transaction_is_committed_after_the_feature_was_downgraded(version):
    """By a client whose connection is older: as the broker told it then, EndTxn v5 was right. At 0
    that leaves the transaction open until the broker is restarted.
    """
    topic, name = "downgraded", "p.0123456789ab.0"
    with PatientKafka() as kafka, AdminClient.connect(kafka.bootstrap_servers) as admin:
        kafka.create_topic(topic, 3)
        client = TransactionClient(admin)
        assert client.init_producer_id(
            "p.driver", 60_000, admin.deadline_in(PATIENCE_MS)
        ).transaction_version
        with producer_for(kafka.bootstrap_servers) as producer:
            prepared = write(producer, topic, name, [rows(0)])
        assert prepared.transaction_version == 2
        transaction = TaskTransaction(*prepared, 0, 300, "0-0")
        client.describe([name], admin.deadline_in(PATIENCE_MS))
        feature = f"transaction.version={version}"
        servers = ("--bootstrap-server", kafka.bootstrap_servers)
        kafka.run_tool("FeatureCommand", *servers, "downgrade", "--feature", feature)
        outcomes = client.commit_all([transaction], admin.deadline_in(PATIENCE_MS))
        assert outcomes == {name: Outcome.COMMITTED}
        assert eventually(lambda: committed(kafka, topic) == list(range(300)))
        again = client.commit_all([transaction], admin.deadline_in(PATIENCE_MS))
        assert again == {name: Outcome.COMMITTED}
