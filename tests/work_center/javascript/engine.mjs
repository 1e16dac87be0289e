// Asks a JavaScript engine what pgflow_migrate.work_center.javascript has to answer.
//
// Alone it answers on stdout what is asked on stdin, a line each: [question, argument] and the answer.
// A value is written so that JSON carries it whole: {number: "-0"}, {undefined: true}, {bytes: [1, 2]},
// {object: [[key, value], …]} in the order of the members; what is thrown, {throws: "TypeError"}.

import { createHash } from 'node:crypto';
import { pathToFileURL } from 'node:url';

export function written(value) {
  if (value === undefined) return { undefined: true };
  if (typeof value === 'number') return { number: Object.is(value, -0) ? '-0' : String(value) };
  if (Array.isArray(value)) return value.map(written);
  if (value instanceof Uint8Array) return { bytes: [...value] };
  if (value === null || typeof value !== 'object') return value;
  return { object: Object.entries(value).map(([key, member]) => [key, written(member)]) };
}

function read(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(read);
  if ('undefined' in value) return undefined;
  if ('number' in value) return Number(value.number.replace('inf', 'Infinity'));
  if ('bytes' in value) return Uint8Array.from(value.bytes);
  const object = {};
  for (const [key, member] of value.object) {
    // Plain assignment would take __proto__ for the prototype.
    Object.defineProperty(object, key, { value: read(member), writable: true, enumerable: true, configurable: true });
  }
  return object;
}

// JSON with sorted keys; the concatenations and join() decide what becomes of undefined.
function stable(value) {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return '[' + value.map(element => stable(element)).join(',') + ']';
  const members = [];
  for (const key of Object.keys(value).sort()) members.push(JSON.stringify(key) + ':' + stable(value[key]));
  return '{' + members.join(',') + '}';
}

const QUESTIONS = {
  parse: text => JSON.parse(text),
  stringify: value => JSON.stringify(value),
  stable_json: stable,
  to_string: value => String(value),
  to_number: value => Number(value),
  truthy: value => Boolean(value),
  is_object: value => typeof value === 'object' && value !== null,
  get_id: value => value.id,
  utf8: text => new Uint8Array(Buffer.from(text, 'utf8')),
  sha256: text => createHash('sha256').update(text, 'utf8').digest('hex'),
};

export function answer(question, argument) {
  try {
    return written(QUESTIONS[question](argument));
  } catch (error) {
    return { throws: error.name };
  }
}

// So that no pipe, editor or checkout changes a character.
export function ascii(text) {
  return text.replace(/[^ -~]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  let rest = '';
  process.stdin.setEncoding('utf8').on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const [question, argument] = JSON.parse(line);
      process.stdout.write(ascii(JSON.stringify(answer(question, read(argument)))) + '\n');
    }
  });
}
