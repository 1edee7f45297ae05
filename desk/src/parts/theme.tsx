// Light, dark, or as the system has it; kept in the browser.
import { signal } from '@preact/signals';
import { Icon } from './icon';

const KEPT = 'sallyport-theme';
const THEMES = ['auto', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];
const theme = signal<Theme>('auto');

function setTheme(name: Theme): void {
  theme.value = name;
  if (name === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

export function takeTheme(): void {
  const kept = THEMES.find((name) => name === localStorage.getItem(KEPT));
  if (kept) setTheme(kept);
}

function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]!;
  setTheme(next);
  localStorage.setItem(KEPT, next);
}

export const ThemeButton = () => (
  <button type="button" class="icon" aria-label={`Theme: ${theme.value}`} title={`Theme: ${theme.value}`} onClick={nextTheme}>
    <Icon name="theme" />
  </button>
);
