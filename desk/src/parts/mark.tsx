// The mark of Sallyport: an open gate.

export const Mark = () => (
  <svg class="gate-mark" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
    <rect width="32" height="32" rx="7" />
    <path d="M8 26V15a8 8 0 0 1 16 0v11h-4V15a4 4 0 0 0-8 0v11z" />
  </svg>
);
