// A client of HTTP/2 over TLS that sends requests over one connection until its input ends.
// Arguments: the address of a page, and the file of the certificate to trust.
// It writes a line "begun" when the first answer is there; at the end how many answers came, and how many
// of them were not 200, and fails when the connection did.
import { readFileSync } from 'node:fs';
import { connect } from 'node:http2';

const [address, file] = process.argv.slice(2);
const page = new URL(address);
const session = connect(page.origin, { ca: readFileSync(file) });
let answers = 0;
let bad = 0;
let isOver = false;

function fail(error) {
    console.error(String(error));
    process.exit(1);
}

function ask() {
    const stream = session.request({ ':path': page.pathname });
    let status = 0;
    stream.on('response', (headers) => { status = headers[':status']; });
    stream.on('error', fail);
    stream.on('data', () => {});
    stream.on('end', () => {
        answers += 1;
        if (status !== 200) bad += 1;
        if (answers === 1) console.log('begun');
        if (isOver) session.close(); else ask();
    });
    stream.end();
}

session.on('error', fail);
session.on('goaway', (code) => { if (!isOver) fail(`goaway ${code}`); });
session.on('close', () => console.log(`${answers} answers, ${bad} bad`));
process.stdin.on('end', () => { isOver = true; });
process.stdin.resume();
for (let number = 0; number < 8; number += 1) ask();
