// Records what Node.js answers: node tests/work_center/javascript/record.mjs > tests/work_center/javascript/recorded.json

import { answer, ascii, written } from './engine.mjs';

const TEXTS = [
  // Words, blanks
  'null', 'true', 'false', ' \t\n\r1 \t\n\r', '\u00a01', '1\u00a0', '\f1', '\v1', '\ufeff1', '1\0', '', ' ',
  'NaN', 'Infinity', '-Infinity', 'undefined', 'nul', 'nulll', 'True', 'None', '//1', '1//', '/**/1', "'a'", 'a',
  // Numbers
  '0', '-0', '-0.0', '-0e5', '00', '01', '-01', '-', '+1', '.5', '5.', '5.e1', '5e', '5e+', '5e+0', '5E-0', '1e01', '1_0',
  '0x10', '1n', '1 2', '--1', '1e308', '1.8e308', '1e309', '-1e309', '1e999999999999', '1e-323', '1e-324', '1e-999',
  '4.9406564584124654e-324', '2.4703282292062327e-324', '2.4703282292062328e-324', '2.2250738585072011e-308',
  '9007199254740991', '9007199254740992', '9007199254740993', '9007199254740995', '18446744073709551616',
  '1764000000000', '1764000000000.5', '0.1', '0.30000000000000004', '1e21', '1e20', '123456789012345678901234567890',
  '1' + '0'.repeat(400), '0.' + '0'.repeat(400) + '1', '0.' + '3'.repeat(900), '١',
  // Texts
  '""', '"a', '"', '"\\', '"\\"', '"\\u"', '"\\u12"', '"\\u123g"', '"\\u+123"', '"\\u 123"', '"\\u1_23"', '"\\x41"', "\"\\'\"",
  '"\\0"', '"\\v"', '"\\a"', '"\\/\\b\\f\\n\\r\\t\\"\\\\"', '"\t"', '"\n"', '"\0"', '"\u001f"', '"\u007f"', '"\u0080"',
  '"\u2028\u2029"', '"\ufeff"', '"\\u0000"', '"\\u001F"', '"\\u00e9"', '"é"', '"\\uD83D\\uDE00"', '"😀"', '"\\ud83d\\ude00"',
  '"\\ud83d"', '"\\ude00"', '"\\ude00\\ud83d"', '"\\ud83d\\ud83d\\ude00"', '"\\ud83d\\ude00\\ude00"', '"\\ud83dx\\ude00"',
  '"\\ud83d\\\\ude00"', '"\\uffff"', '"\\ufdd0"', '"\\U0041"', '"a" "b"', '"a""b"',
  // Containers
  '[]', '{}', '[ ]', '{ }', '[', ']', '{', '}', '[}', '{]', '[1,]', '[,1]', '[1,,2]', '[1 2]', '[1', '[1,', '{"a"}', '{"a":}',
  '{"a":1,}', '{,}', '{"a":1 "b":2}', '{"a" 1}', '{a:1}', '{1:1}', "{'a':1}", '{"a":1}}', '[[]', '[]]', '[][]', '{"a"::1}',
  '{"a":1;"b":2}', '[\u00a0]', '[1\f]', '[ 1 , [ 2 , { "a" : [ ] } ] ]', '{"":""}', '{"a":{"b":{"c":[[[]]]}}}', '[null,true,false]',
  '[NaN]', '[Infinity]', '{"a":-Infinity}', '[undefined]',
  // Keys: repeated ones, indexes, names that have a meaning
  '{"a":1,"a":2}', '{"a":1,"b":2,"a":3}', '{"b":1,"a":2,"b":{"c":1}}', '{"\\u0061":1,"a":2}', '{"10":1,"9":2,"a":3,"1":4}',
  '{"b":1,"2":2,"a":3,"1":4,"2":5}', '{"01":1,"1":2,"00":3,"0":4,"-1":5,"-0":6}', '{"1.5":1,"1":2," 1":3,"1 ":4,"+1":5,"1e1":6}',
  '{"b":1,"4294967295":2,"4294967294":3}', '{"4294967295":1,"4294967294":2,"4294967296":3,"0":4}', '{"9007199254740993":1,"99999999999":2,"2147483648":3,"2147483647":4}',
  '{"１":1,"٢":2,"3":3,"²":4}', '{"\\u0031":1,"\\u0030":2}', '{"x":1,"5":2}', '{"__proto__":1}', '{"__proto__":{"id":1},"a":2}',
  '{"__proto__":1,"__proto__":2}', '{"constructor":1,"prototype":2,"length":3}', '{"toString":1}', '{"toString":null}',
  '{"valueOf":1}', '{"toJSON":1}', '{"toString":"a","valueOf":"b"}', '[{"toString":1}]', '[[1,[{"toString":1}]]]',
  '{"then":1,"join":2}', '{"\\ud800":1,"\\ue000":2,"\\uffff":3,"\\ud83d\\ude00":4,"z":5,"é":6,"":7}',
  '{"\\udfff":1,"\\ud800\\udc00":2,"\\ud800":3,"\\uD7FF":4,"\\ue000":5}', '{"a\\ud800":1,"a":2,"a\\ud800b":3,"a\\u0000":4,"A":5}',
  '{"aa":1,"a":2,"B":3,"b":4,"_":5,"a b":6,"a\\"":7,"\\n":8}', '{"id":1,"ID":2,"Id":3}',
  // Arrays as texts and numbers
  '[1,[2,[3,[]]],null,"a"]', '[[],[]]', '[[null]]', '[null]', '[""]', '["5"]', '[5]', '[" 5 "]', '["0x10"]', '[[["7"]]]', '[true]',
  '[1,2]', '[{}]', '[[],{}]', '[-0]', '[1e21,1e-7]',
  // Messages
  '{"id":"m-1","role":"user","text":"Grüße 😀\\n\\"x\\"","createdAt":1764000000000,"attachments":[{"name":"a.png","size":0}]}',
  '{"id":0,"turnId":"","role":null,"createdAt":"1764000000000","updatedAt":-1}', '{"id":[1,2],"createdAt":[5],"updatedAt":"x"}',
  '{"id":{"a":1},"createdAt":true,"updatedAt":null}', '{"id":{"toString":1}}', '{"id":1e21,"text":"\\ud800","status":"\\udc00x"}',
  '{"text":5,"attachments":{"0":1},"turnId":false}', '{"createdAt":1e400,"updatedAt":-1e400}', '{"id":"\\u0000","text":"a\\u0000b"}',
];

const NUMBERS = [
  0, -0, 1, -1, 0.5, -0.5, 0.1, 0.1 + 0.2, 1 / 3, 2 / 3, 100, 123456, 1764000000000, 1764000000000.5, 2 ** 31, 2 ** 32, 2 ** 53,
  2 ** 53 - 1, -(2 ** 53), 2 ** 53 + 2, 2 ** 54, 2 ** 63, 2 ** 64, 2 ** 69, 2 ** 70, 1e15, 1e16, 1e17, 123456789012345680, 1e20, 1e21,
  1e22, 999999999999999900000, 999999999999999999999, 1.5e21, 1.2345678901234567e21, 1.2345678901234567e20, 1e23, 9.5e22, 1e100,
  1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e-5, 1e-6, 1e-7, 1.5e-6, 1.5e-7, 0.000001234, 0.0000001234, 9.999999e-7,
  0.00001, 0.0001, 0.001, 0.00012345678901234567, -1e-7, -1e21, -1.5e-10, 4.35, 5e-7, 123e-20, 4503599627370496.5, 1.0000000000000002,
  NaN, Infinity, -Infinity,
];

const NUMERALS = [
  '', ' ', '\t\n\v\f\r', '0', '-0', '+0', ' 12 ', '1 2', '1_000', '1,000', '.5', '5.', '.', '-.5', '+5.', '..5', '5..', '1e3', '1E3', '1e+3',
  '1e-3', '1e', 'e1', '.e1', '1e1.5', '1e400', '-1e400', '1e-400', '-1e-400', 'Infinity', '+Infinity', '-Infinity', 'infinity', 'inf', 'INFINITY',
  'Infinityx', ' Infinity ', 'NaN', 'nan', '-NaN', '+-1', '--1', '- 1', '0x10', '0X1F', '-0x10', '+0x10', '0x', '0xg', '0x1.8', '0o17', '0O17', '0o8',
  '0b101', '0B1', '0b2', '0b', '010', '09', '0x10n', '10n', '1f', '1.5f', '0x20000000000001', '0x20000000000003', '0x' + 'f'.repeat(300),
  '0b' + '1'.repeat(54), '0o' + '7'.repeat(19), '9007199254740993', '1'.repeat(400), '0.' + '1'.repeat(400), '\u00a05\u00a0', '\u16805', '\u20005\u200a',
  '\u20285\u2029', '\u202f5\u205f', '\u30005', '\ufeff5', '\u200b5', '\u00855', '\u180e5', '\u001c5', '\u001f5', '5\0', '\0', '\x005', '٣', '５', '²', '½', 'true',
  'null', 'undefined', '[]', '1764000000000', '2026-11-29', '\ud800', 'é', '😀',
];

const STRINGS = [
  '', 'a', 'work-center-migration:23-conversation-stream:v1', 'é', '€', '😀', '\ud800', '\udc00', 'a\ud800b', '\udc00\ud800', '\ud800\ud83d\ude00', '\ud83d\ude00\ude00', '\0',
  'a\0b', '\u0001\u001f\u007f\u0080\u009f', '\b\f\n\r\t\v"\\/', '\u2028\u2029', '\ufeffa', '\uffff\ufffe\ufdd0', '\ud7ff\ue000', '<script>&\'', 'legacy:😀:1', '\u{10ffff}',
];

const OTHERS = [
  undefined, null, true, false, [], {}, [undefined], [undefined, 1, undefined], [null, undefined], { a: undefined }, { b: undefined, a: 1 },
  { a: [undefined, { c: undefined }], 1: undefined }, [[undefined], [[]]], [NaN, Infinity, -Infinity, -0], { n: NaN },
  new Uint8Array(), Uint8Array.of(5), Uint8Array.of(0, 255, 1), Uint8Array.from({ length: 12 }, (_, index) => index * 20),
  [Uint8Array.of(1, 2), [Uint8Array.of()]], { currentSpecHash: Uint8Array.from({ length: 11 }, () => 7), eventId: 5 }, [1e21, 1e-7, 'a'],
];

const OF_AN_OBJECT = ['stringify', 'stable_json', 'to_string', 'to_number', 'get_id'];

function* cases() {
  for (const text of TEXTS) {
    yield ['parse', text];
    let value;
    try { value = JSON.parse(text); } catch { continue; }
    if (typeof value === 'object') for (const question of OF_AN_OBJECT) yield [question, value];
  }
  for (const number of NUMBERS) for (const question of ['stringify', 'stable_json', 'to_string', 'truthy']) yield [question, number];
  for (const text of NUMERALS) yield ['to_number', text];
  for (const text of STRINGS) for (const question of ['stringify', 'stable_json', 'utf8', 'sha256', 'truthy']) yield [question, text];
  for (const value of OTHERS) for (const question of [...OF_AN_OBJECT, 'truthy', 'is_object']) yield [question, value];
}

const lines = new Set();
for (const [question, argument] of cases()) lines.add(ascii(JSON.stringify([question, written(argument), answer(question, argument)])));
console.log(`[\n${[...lines].join(',\n')}\n]`);
