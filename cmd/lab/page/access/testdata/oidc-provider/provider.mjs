// An OpenID provider, npm's oidc-provider, for the tests: node provider.mjs FOLDER PUBLIC-URL, where FOLDER has it installed.
// Whoever logs in is who they say; everybody works through loans. It prints its issuer when it serves.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, getwork] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(createRequire(`${folder}/`).resolve('oidc-provider')));

const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'getwork',
    client_secret: 'a secret of the tests, long enough',
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: [`${getwork}/auth/callback`],
    post_logout_redirect_uris: [`${getwork}/`],
    backchannel_logout_uri: `${getwork}/auth/backchannel`,
    backchannel_logout_session_required: true,
  }],
  claims: { openid: ['sub', 'sid'], profile: ['preferred_username', 'groups'] },
  conformIdTokenClaims: false, // the ID token has the profile's claims
  cookies: { keys: ['of the tests'] },
  features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  fetch(url, options) {
    delete options.dispatcher; // it refuses addresses such as this machine's own
    return fetch(url, options);
  },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, groups: ['loan-desk'] }),
  }),
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  rotateRefreshToken: true,
});
const problem = (ctx, error) => console.error(error.message, error.error_description ?? '', error.cause ?? '');
for (const event of ['server_error', 'authorization.error', 'grant.error', 'backchannel.error', 'end_session.error']) provider.on(event, problem);
provider.on('backchannel.success', () => console.log('told getwork that a session has ended'));
provider.on('grant.success', (ctx) => console.log('gave tokens for', ctx.oidc.params.grant_type));
server.on('request', provider.callback());
console.log('issuer', issuer);
process.stdin.on('end', () => process.exit()).resume(); // it ends with the test
