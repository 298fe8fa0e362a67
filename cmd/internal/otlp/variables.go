package otlp

// Variables are the variables of the environment that people set, for the manual. OpenTelemetry's libraries read more.
var Variables = []struct{ Name, Meaning string }{
	{"OTEL_EXPORTER_OTLP_ENDPOINT", "The collector, such as `http://127.0.0.1:4318`; `/v1/traces` is added. Without it nothing is sent, and tracing is off."},
	{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "The same for traces alone, with the whole path, such as `http://127.0.0.1:4318/v1/traces`. It goes before the other."},
	{"OTEL_EXPORTER_OTLP_HEADERS", "What the collector asks for, such as `authorization=Bearer%20TOKEN,tenant=bank`. Values are percent-encoded, and never logged."},
	{"OTEL_EXPORTER_OTLP_PROTOCOL", "`http/protobuf`, which is the default. With another value the node refuses to start."},
	{"OTEL_SERVICE_NAME", "The service's name in traces; `getwork` by default."},
	{"OTEL_RESOURCE_ATTRIBUTES", "What else traces say of the node, such as `deployment.environment.name=production`. `service.instance.id` is the node's name in the log, and `service.version` getwork's version, unless they stand here."},
	{"OTEL_TRACES_SAMPLER", "Which traces are sent: `parentbased_always_on` (all, the default), `parentbased_traceidratio`, `traceidratio`, `always_off` and so on."},
	{"OTEL_TRACES_SAMPLER_ARG", "The part that a ratio samples, such as `0.01`."},
	{"OTEL_TRACES_EXPORTER", "`otlp`, which is the default; `none` switches tracing off."},
	{"OTEL_SDK_DISABLED", "`true` switches tracing off."},
}
