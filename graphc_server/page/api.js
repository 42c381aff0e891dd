// What the server is asked. Paths are of this server alone.

/** An answer that is an error, in the server's words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function said(content, status) {
  const detail = content?.detail;
  if (Array.isArray(detail)) return detail.map((each) => `${each.loc.slice(1).join('.')}: ${each.msg}`).join('; ');
  return detail || `the server answers ${status}`;
}

async function ask(method, path, body) {
  const options = { method };
  if (body !== undefined) Object.assign(options, { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } });
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, 'the server does not answer');
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, said(content, answer.status));
  return content;
}

export const get = (path, query = {}) => ask('GET', Object.keys(query).length ? `${path}?${new URLSearchParams(query)}` : path);
export const post = (path, body = {}) => ask('POST', path, body);
export const put = (path, body) => ask('PUT', path, body);
export const remove = (path) => ask('DELETE', path);

/** The events of all jobs; the browser connects again by itself. */
export function listen(kinds) {
  const source = new EventSource('/graphc/v1/events');
  for (const [kind, run] of Object.entries(kinds)) {
    source.addEventListener(kind, (event) => run(event.data ? JSON.parse(event.data) : null));
  }
  return source;
}

/** A picture of this server, or of the user's machine, as a data URI. */
export async function dataUri(place) {
  const blob = place instanceof Blob ? place : await (await fetch(place)).blob();
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error('the picture cannot be read'));
    reader.readAsDataURL(blob);
  });
}
