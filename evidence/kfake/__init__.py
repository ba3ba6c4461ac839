"""The producer against kfake, brokers that share no code with Apache Kafka. Needs Go."""
