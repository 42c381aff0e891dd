// Two pictures, one over the other, with an edge between them that is moved: by hand, or by the arrow keys.

import { make } from './dom.js';

export function compare(first, second) {
  const below = make('img', { src: second, alt: 'The later picture' });
  const above = make('img.above', { src: first, alt: 'The earlier picture' });
  const slider = make('input', { type: 'range', min: 0, max: 100, step: 0.5, value: 50, 'aria-label': 'How much of the earlier picture is seen' });
  const edge = make('div.edge', { 'aria-hidden': 'true' });
  const element = make('div.compare', {}, below, above, edge, slider);
  const move = () => {
    above.style.clipPath = `inset(0 ${100 - slider.value}% 0 0)`;
    edge.style.left = `${slider.value}%`;
    slider.setAttribute('aria-valuetext', `${Math.round(slider.value)} percent`);
  };
  slider.addEventListener('input', move);
  below.addEventListener('load', () => {
    element.dataset.shape = below.naturalWidth / below.naturalHeight;
    window.dispatchEvent(new Event('resize'));
  });
  move();
  return element;
}
