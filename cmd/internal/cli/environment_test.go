package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The program that an agent runs gets neither what getwork itself reads nor what looks like a secret, unless it is named.
func TestEnvironmentWithoutSecrets(t *testing.T) {
	t.Parallel()
	got, withheld := withoutSecrets([]string{
		"PATH=/bin", "HOME=/", "PWD=/", "OLDPWD=/", "LANG=C", "XKEYSYMDB=x", "TOKENIZERS_PARALLELISM=true", "KEYBOARD=x", "DISPLAY=:0", "SSH_AUTH_SOCK=/x", "SITE=https://bank.example:8443/a", "MAIL=a@b:c",
		"GETWORK_TOKEN=x", "GETWORK_URL=http://127.0.0.1", "GETWORK_ROLE=x", "PGPASSWORD=x", "PGHOST=x", "DATABASE_URL=x", "GETWORK_QUERY_DATABASE_URL=x", "OTEL_EXPORTER_OTLP_HEADERS=x",
		"SECRET_KEY=x", "AWS_SECRET_ACCESS_KEY=x", "AWS_ACCESS_KEY_ID=x", "CLIENTSECRET=x", "GITHUB_TOKEN=x", "VAULT_TOKEN_FILE=x", "github_token=x", "ADMIN_PASSWORD=x", "MYSQL_PWD=x", "DB_PASS=x",
		"SIGNING_KEY=x", "APIKEY=x", "CREDENTIALS_DIRECTORY=x", "PASSPHRASE=x", "BASIC_AUTH=x",
		"BROKER=amqp://user:pass@mq/x", "CACHE=redis://:pass@cache", "ODD=postgres://u:a/b@db/x", "JDBC=jdbc:postgresql://db/x?user=u&password=x", "DSN=host=db password=x", "MAILER=smtp+tls://a:b@c, smtp://d",
		"PASSED_TOKEN=x", "GETWORK_ROLES=x",
	}, []string{"PASSED_TOKEN", "GETWORK_ROLES"})
	if diff := cmp.Diff([]string{"PATH=/bin", "HOME=/", "PWD=/", "OLDPWD=/", "LANG=C", "XKEYSYMDB=x", "TOKENIZERS_PARALLELISM=true", "KEYBOARD=x", "DISPLAY=:0", "SSH_AUTH_SOCK=/x",
		"SITE=https://bank.example:8443/a", "MAIL=a@b:c", "PASSED_TOKEN=x", "GETWORK_ROLES=x"}, got); diff != "" {
		t.Errorf("it gets (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "CLIENTSECRET", "GITHUB_TOKEN", "VAULT_TOKEN_FILE", "github_token", "ADMIN_PASSWORD", "MYSQL_PWD", "DB_PASS",
		"SIGNING_KEY", "APIKEY", "CREDENTIALS_DIRECTORY", "PASSPHRASE", "BASIC_AUTH", "BROKER", "CACHE", "ODD", "JDBC", "DSN", "MAILER"}, withheld); diff != "" {
		t.Errorf("withheld (-want +got)\n%s", diff)
	}
}
