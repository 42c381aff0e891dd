// A picture of the gallery with how it was made.

import { get, remove } from './api.js';
import { button, fault, find, make, openDialog } from './dom.js';
import { changed } from './state.js';
import { begin, useAgain } from './use.js';

export async function showDetail(address) {
  let picture;
  try {
    picture = await get(address);
  } catch (problem) {
    fault(problem.message);
    return;
  }
  const close = () => find('detail').close();
  const pairs = Object.entries(picture.labels).flatMap(([name, text]) => [make('dt', {}, name), make('dd', {}, text)]);
  const negative = picture.settings.negative_prompt;
  const gone = button('Delete', async () => {
    if (gone.textContent === 'Delete') { gone.textContent = 'Delete for good?'; return; }
    try {
      await remove(address);
      close();
      changed('removed', address);
    } catch (problem) {
      fault(problem.message);
    }
  }, 'quiet.fault');
  openDialog('detail', 'Picture',
    make('div.detail', {},
      make('img', { src: picture.url, alt: picture.prompt || 'A picture without a prompt' }),
      make('div.inside', {},
        make('p.said', {}, picture.prompt || 'No prompt'),
        negative ? make('p.said.negative', {}, negative) : null,
        make('dl', {}, ...pairs),
        make('div.toolbar', {},
          button('Use again', async () => { if (await useAgain(address)) close(); }, 'main'),
          button('Begin with it', async () => { if (await begin(picture.url)) { close(); location.hash = '#create'; } }),
          make('a.button', { href: picture.url, download: address.split('/').slice(-2).join('-') }, 'Download'),
          button('Copy the text', () => navigator.clipboard?.writeText(picture.text)),
          gone))));
}
