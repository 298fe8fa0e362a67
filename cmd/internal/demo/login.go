package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/cli"
	"getwork/cmd/internal/idp"
	"getwork/web"
)

const (
	clientID = "getwork-demo" // what the identity provider calls the demo's nodes
	audience = "getwork-demo" // whom the access tokens of the demo's own programs are for

	introducedWithin = 10 * time.Second // a node knows the provider after its start
)

const inviteToLogIn = `People log in at an identity provider of the demo's own, %s, which asks for no password. The page has a pane and a
node for each of Oliver, Tracy, Mia and Ada. Log in as Ada in the last one, and sign Oliver out everywhere: his pane is back
at the log-in within two seconds.

From a terminal, as whoever you are in the browser:
  getwork login --url %s
  getwork get %s --count 3 --wait 120s --url %s
`

// startProvider starts the identity provider, and prepares the flags with which nodes use it. It listens beside the page, on
// the same host, so that frames may keep their cookies while people are there.
func (d *demo) startProvider(ctx context.Context) error {
	beside, err := listenBeside(ctx, []string{d.page.Addr().String()})
	if err != nil {
		return err
	}
	address := beside.Addr().String()
	_ = beside.Close()
	secret, err := d.clientSecret()
	if err != nil {
		return err
	}
	if d.provider, err = idp.Start(idp.Config{Listen: address, Asks: true}); err != nil {
		return err
	}
	d.fleet.identity = []string{"--auth", "oidc", "--trust-query-writers", "--oidc-issuer", d.provider.Issuer, "--oidc-client-id", clientID,
		"--oidc-client-secret-file", secret, "--jwt-issuer", d.provider.Issuer, "--jwt-audience", audience}
	for _, grant := range idp.Grants {
		d.fleet.identity = append(d.fleet.identity, "--grant", grant)
	}
	return d.adoptAccounts(ctx)
}

// clientSecret returns the file with the secret that nodes and provider share. It stays the same, because what nodes keep in
// the database is sealed with it.
func (d *demo) clientSecret() (file string, err error) {
	file = filepath.Join(d.DataDir, "demo-client-secret")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	return file, os.WriteFile(file, []byte(rand.Text()+"\n"), 0o600)
}

// People's accounts are bound to the provider's address, which may be another one than last time.
const adoptAccounts = `update getwork.principal set iss = $1 where iss like 'http://127.0.0.1:%' and iss <> $1`

func (d *demo) adoptAccounts(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.database)
	if err != nil {
		return fmt.Errorf("connect to the bank's database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	err = conn.QueryRow(ctx, `select to_regclass('getwork.principal') is not null`).Scan(&there)
	if err == nil && there {
		_, err = conn.Exec(ctx, adoptAccounts, d.provider.Issuer)
	}
	if err != nil {
		return fmt.Errorf("bind the people's accounts to the identity provider: %w", err)
	}
	return nil
}

// introduceNodes registers the nodes with the provider, and waits until all of them know it.
func (d *demo) introduceNodes(ctx context.Context) error {
	secret, err := os.ReadFile(filepath.Join(d.DataDir, "demo-client-secret"))
	if err != nil {
		return err
	}
	c := idp.Client{ID: clientID, Secret: strings.TrimSpace(string(secret))}
	nodes := d.fleet.all()
	for _, n := range nodes {
		c.Redirects = append(c.Redirects, n.url+"/auth/callback")
		c.AfterOut = append(c.AfterOut, n.url+"/")
		c.Messages = append(c.Messages, n.url+"/auth/backchannel") // one that lives would do
	}
	d.provider.Register(c)
	ctx, cancel := context.WithTimeout(ctx, introducedWithin)
	defer cancel()
	for i := range nodes {
		if err := d.awaitProvider(ctx, i); err != nil {
			return fmt.Errorf("node %d does not reach the identity provider: %w", i+1, err)
		}
	}
	return nil
}

func (d *demo) awaitProvider(ctx context.Context, i int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := d.client(i, "demo", web.Manager)
		if err != nil {
			return err
		}
		if _, err = c.Do(ctx, cli.Call{Method: "GET", Path: "/me"}, nil); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// accessToken returns a token with which the demo's own programs call the nodes as that user.
func (d *demo) accessToken(user string, role web.Role) string {
	group := "loan-desk"
	if role == web.Manager {
		group = "loan-managers"
	}
	return d.provider.Sign("at+jwt", map[string]any{"aud": audience, "sub": "program " + user, "preferred_username": user, "groups": []string{group},
		"exp": time.Now().Add(time.Hour).Unix()})
}
