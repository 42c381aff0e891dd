// X/Y/Z plots: the same picture with other values of settings, as a table that fills while it is painted.

import { get, post, remove } from './api.js';
import { button, find, later, make } from './dom.js';
import { follow, put, show } from './stage.js';
import { changed, on, state } from './state.js';

const NAMES = { x: 'Columns (X)', y: 'Rows (Y)', z: 'Tables (Z)' };
let plot = null;

export const wanted = () => Object.values(state.axes).some((axis) => axis.name && axis.values.trim());

/** The group of the form. */
export function drawAxes() {
  const rows = Object.entries(NAMES).map(([name, label]) => {
    const axis = state.axes[name];
    const known = state.described.axes;
    if (!known.some((each) => each.name === axis.name)) Object.assign(axis, { name: '', values: '' });
    const select = make('select', { id: `axis-${name}` }, make('option', { value: '' }, 'Nothing'), ...known.map((each) => make('option', { value: each.name }, each.name)));
    select.value = axis.name;
    const values = make('input', { type: 'text', value: axis.values, 'aria-label': `Values of ${label}`, placeholder: hint(axis.name), disabled: !axis.name });
    const choices = make('datalist', { id: `values-${name}` });
    values.setAttribute('list', choices.id);
    const offer = () => {
      const found = known.find((each) => each.name === axis.name)?.choices ?? [];
      const before = values.value.includes(',') ? `${values.value.slice(0, values.value.lastIndexOf(','))}, ` : '';
      choices.replaceChildren(...found.map((choice) => make('option', { value: `${before}${choice}` })));
    };
    select.addEventListener('change', () => {
      Object.assign(axis, { name: select.value, values: '' });
      Object.assign(values, { value: '', disabled: !axis.name, placeholder: hint(axis.name) });
      offer();
      changed('axes');
    });
    values.addEventListener('input', () => { axis.values = values.value; offer(); changed('axes'); });
    offer();
    return make('div.axis', {}, make('label', { htmlFor: select.id }, label), select, values, choices);
  });
  const says = make('span.says', { id: 'says-plot' });
  const details = make('details', { 'data-group': 'plot', open: wanted() }, make('summary', {}, make('span', {}, 'Plot (X/Y/Z)'), says),
    make('div.inside', {}, make('p.hint', {}, 'Values stand between commas; of numbers also 1-5, 1-5 (+2), 1-10 [5].'), ...rows));
  find('groups').append(details);
  showAxes();
}

function hint(name) {
  const kind = state.described.axes.find((each) => each.name === name)?.kind;
  return { int: '10, 20, 30', float: '4, 7.5', str: name === 'Size' ? '512x512, 512x768' : name === 'Prompt S/R' ? 'red, blue, green' : 'one, another' }[kind] ?? '';
}

function showAxes() {
  const says = find('says-plot');
  if (says) says.textContent = wanted() ? Object.values(state.axes).filter((axis) => axis.name && axis.values.trim()).map((axis) => axis.name).join(', ') : 'none';
  find('paint').textContent = wanted() ? 'Paint the plot' : 'Paint';
}

/** Put a plot into the queue, and show it. */
export async function paintPlot(picture) {
  const axis = ({ name, values }) => (name && values.trim() ? { name, values } : {});
  const { x, y, z } = state.axes;
  const { id, jobs } = await post('/graphc/v1/plots', { picture, x: axis(x), y: axis(y), z: axis(z) });
  plot = { id, jobs: new Set(jobs) };
  jobs.forEach(follow);
  await draw();
}

async function draw() {
  if (!plot) return;
  const said = await get(`/graphc/v1/plots/${plot.id}`);
  const [x, y, z] = said.axes.map((axis) => axis.labels);
  const size = x.length * y.length;
  const tables = z.map((label, number) => make('figure', {}, label ? make('figcaption', {}, label) : null, table(x, y, said.cells.slice(number * size, (number + 1) * size))));
  const links = z.map((label, number) => make('a.button', { href: `/graphc/v1/plots/${plot.id}/grid?z=${number}`, download: `plot-${number}.png` }, z.length > 1 ? `Download ${label}` : 'Download'));
  const left = said.cells.filter((each) => ['waiting', 'painting'].includes(each.state));
  if (left.length) links.push(button('Cancel the plot', () => Promise.allSettled(left.map((each) => remove(`/graphc/v1/jobs/${each.job}`)))));
  put('plot', make('div.plot', { tabIndex: 0, role: 'region', 'aria-label': 'Plot' }, ...tables), ...links);
}

function table(x, y, cells) {
  const head = make('tr', {}, ...(y.some(Boolean) ? [make('td')] : []), ...x.map((label) => make('th', { scope: 'col' }, label)));
  const rows = y.map((label, row) => make('tr', {}, ...(y.some(Boolean) ? [make('th', { scope: 'row' }, label)] : []),
    ...x.map((_, column) => make('td', {}, cell(cells[row * x.length + column])))));
  const whole = make('table', {}, ...(x.some(Boolean) ? [make('thead', {}, head)] : []), make('tbody', {}, ...rows));
  whole.style.setProperty('--columns', x.length);
  return whole;
}

function cell({ address, state: where, error }) {
  if (!address) return make('div.waits', { title: error }, error || { waiting: 'waits', painting: 'is painted' }[where] || where);
  const picture = { address, url: `${address}/file`, small: `${address}/small`, prompt: '' };
  return make('button.thumb', { type: 'button', 'aria-label': 'Show this picture', onclick: () => show(picture) }, make('img', { src: picture.small, alt: '' }));
}

const redraw = later(() => { if (document.querySelector('.plot')) draw().catch(() => {}); }, 150);

export function startPlots() {
  on('axes', showAxes);
  return { picture: (event) => { if (plot?.jobs.has(event.job)) redraw(); }, job: (event) => { if (plot?.jobs.has(event.job)) redraw(); } };
}
