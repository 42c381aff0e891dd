// Dark or light: as the system has it, unless somebody chose.

import { find, sign } from './dom.js';

const KEPT = 'graphc theme';
const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };
const SHOWN = { auto: ['auto', 'as the system'], light: ['sun', 'light'], dark: ['moon', 'dark'] };

function kept() {
  const found = localStorage.getItem(KEPT);
  return found in NEXT ? found : 'auto';
}

function show(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const [name, words] = SHOWN[theme];
  const button = find('theme');
  button.replaceChildren(sign(name));
  button.title = `Colours: ${words}`;
  button.setAttribute('aria-label', `Colours: ${words}. Change them`);
}

export function startTheme() {
  show(kept());
  find('theme').addEventListener('click', () => {
    const theme = NEXT[kept()];
    localStorage.setItem(KEPT, theme);
    show(theme);
  });
}
