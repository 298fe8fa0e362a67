// Verifies messages by npm's standardwebhooks, one on each line of standard input: {"secret", "headers", "body"}. Writes a line
// for each: ok and the body's type, or why not.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const { Webhook } = createRequire(process.argv[2] + '/')('standardwebhooks');
for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line);
  try {
    console.log('ok ' + new Webhook(secret).verify(body, headers).type);
  } catch (error) {
    console.log(error.message);
  }
}
