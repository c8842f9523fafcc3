import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends numbered values at a steady rate, with the defaults of an idempotent producer, and reads them in a group of one
 * if it has a name. What it prints and what it is told is described in steady_clients.py.
 */
public class Steady {
    static final int KEYS = 20;

    static volatile boolean producing = true, consuming = true;

    public static void main(String[] words) throws Exception {
        String bootstrap = words[0], topic = words[1], name = words[2], group = words[4];
        long perSecond = Long.parseLong(words[3]);
        Thread consumer = group.isEmpty() ? null : new Thread(() -> consume(bootstrap, topic, group));
        if (consumer != null) {
            consumer.start();
        }
        Thread producer = new Thread(() -> produce(bootstrap, topic, name, perSecond));
        producer.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        input.readLine();
        producing = false;
        producer.join();
        input.readLine();
        consuming = false;
        if (consumer != null) {
            consumer.join();
        }
        say("ended");
        Runtime.getRuntime().halt(0);
    }

    static synchronized void say(String line) {
        System.out.print(line + "\n");
        System.out.flush();
    }

    static void produce(String bootstrap, String topic, String name, long perSecond) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        AtomicLong failed = new AtomicLong();
        long sent = 0, began = System.nanoTime();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            while (producing) {
                if (sent * 1_000_000_000L > (System.nanoTime() - began) * perSecond) {
                    try {
                        Thread.sleep(1);
                    } catch (InterruptedException error) {
                        return;
                    }
                    continue;
                }
                String key = name + "-" + sent % KEYS, value = name + ":" + sent;
                long at = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, key, value), (found, error) -> {
                    if (error != null) {
                        failed.incrementAndGet();
                        say("F " + error);
                        return;
                    }
                    long micros = (System.nanoTime() - at) / 1000;
                    say("A " + key + " " + value + " " + found.partition() + " " + found.offset() + " " + micros);
                });
                sent++;
            }
            producer.flush();
        }
        say("stopped " + sent + " " + failed.get());
    }

    static void consume(String bootstrap, String topic, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("J");
                }
            });
            while (consuming) {
                for (ConsumerRecord<String, String> it : consumer.poll(Duration.ofMillis(200))) {
                    say("R " + it.key() + " " + it.value() + " " + it.partition() + " " + it.offset());
                }
            }
            consumer.commitSync();
        }
    }
}
