<?php
// Laravel's side of the matrix: the verbs and lines of the program `peer`, over the framework's own
// RedisQueue. What Laravel itself does to a message (pushRaw, laterRaw, pop, delete, release) is what is
// tested; the envelope around it is made and read here.

require 'Illuminate/Queue/autoload.php';
require 'Illuminate/Redis/autoload.php';
require 'Illuminate/Container/autoload.php';
@include 'Predis/autoload.php';

const URNS = ['urn:babel:orders:created', 'urn:babel:peer:test'];

function parsed(array $argv): array
{
    $options = ['verb' => $argv[1], 'urn' => []];
    for ($i = 2; $i < count($argv); $i++) {
        $name = substr($argv[$i], 2);
        if ($name === 'dlq') {
            $options['dlq'] = true;
        } elseif ($name === 'urn') {
            $options['urn'][] = $argv[++$i];
        } else {
            $options[$name] = $argv[++$i];
        }
    }
    return $options;
}

function queue(string $url, string $name): Illuminate\Queue\RedisQueue
{
    $parts = parse_url($url);
    parse_str($parts['query'] ?? '', $query);
    $app = new Illuminate\Container\Container();
    $server = ['host' => $parts['host'], 'port' => $parts['port'] ?? 6379, 'database' => 0];
    $redis = new Illuminate\Redis\RedisManager($app, 'predis', ['default' => $server]);
    $queue = new Illuminate\Queue\RedisQueue($redis, $name, 'default', (int) ($query['retry_after'] ?? 90), null);
    $queue->setContainer($app);
    $queue->setConnectionName('redis');
    return $queue;
}

function uuid(): string
{
    $bytes = random_bytes(16);
    $bytes[6] = chr(ord($bytes[6]) & 0x0F | 0x40);
    $bytes[8] = chr(ord($bytes[8]) & 0x3F | 0x80);
    return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
}

function json($value): string
{
    return json_encode($value, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION);
}

function produce(array $options): int
{
    $queue = queue($options['broker'], $options['queue']);
    for ($n = 0; $n < (int) ($options['count'] ?? 1); $n++) {
        $urn = $options['urn'][0] ?? 'urn:babel:peer:test';
        $id = uuid();
        // The data goes in as text: PHP's own numbers would round it.
        $data = $options['data'] ?? "{\"n\":$n}";
        $meta = ['id' => $id, 'queue' => $options['queue'], 'lang' => 'php', 'schema_version' => 1, 'created_at' => (int) (microtime(true) * 1000)];
        $body = '{"job":' . json($urn) . ',"trace_id":' . json($options['trace'] ?? uuid()) . ',"data":' . $data
            . ',"meta":' . json($meta) . ',"attempts":0}';
        if (isset($options['body'])) {
            $body = $options['body'];
            $read = json_decode($body);
            [$id, $urn] = [$read->meta->id, $read->job];
        }
        if (isset($options['delay'])) {
            $later = new ReflectionMethod($queue, 'laterRaw');
            $later->setAccessible(true);
            $later->invoke($queue, (int) $options['delay'], $body, $options['queue']);
        } else {
            $queue->pushRaw($body, $options['queue']);
        }
        echo json(['published' => $id, 'urn' => $urn]), "\n";
    }
    return 0;
}

function consume(array $options): int
{
    $queue = queue($options['broker'], $options['queue']);
    $urns = $options['urn'] ?: URNS;
    $deadline = microtime(true) + (float) $options['timeout'];
    $most = (int) ($options['deliveries'] ?? PHP_INT_MAX);
    [$deliveries, $handled] = [0, 0];
    while ($handled < (int) $options['count'] && $deliveries < $most && microtime(true) < $deadline) {
        $job = $queue->pop($options['queue']);
        if (!$job) {
            usleep(100000);
            continue;
        }
        $raw = $job->getRawBody();
        $envelope = json_decode($raw);
        $deliveries++;
        $ok = $deliveries > (int) ($options['fail-first'] ?? 0) && in_array($envelope->job, $urns, true);
        echo json([
            'urn' => $envelope->job,
            'trace_id' => $envelope->trace_id,
            'id' => $envelope->meta->id,
            // Laravel's number counts this delivery in.
            'attempts' => $job->attempts() - 1,
            'data' => $envelope->data,
            'lang' => $envelope->meta->lang,
            'ok' => $ok,
            'delivery' => $deliveries,
            'headers' => new stdClass(),
            'body' => $raw,
        ]), "\n";
        if ($ok) {
            $job->delete();
            $handled++;
        } elseif ($job->attempts() < (int) ($options['max-attempts'] ?? 3)) {
            $job->release(0);
        } else {
            $job->delete();
        }
    }
    return $handled >= (int) $options['count'] ? 0 : 3;
}

$options = parsed($argv);
exit($options['verb'] === 'produce' ? produce($options) : consume($options));
