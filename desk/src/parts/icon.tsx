// The few drawings of the pages, as strokes on a 16 by 16 field.

const PATHS = {
  close: 'M4 4l8 8M12 4l-8 8',
  back: 'M10 3L5 8l5 5',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3.5 3.5',
  replay: 'M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3',
  edit: 'M3 13l.7-3L11 2.7a1 1 0 0 1 1.4 0l.9.9a1 1 0 0 1 0 1.4L6 12.3zM10 4l2 2',
  copy: 'M6 6h7v7H6zM3.5 10H3V3h7v.5',
  download: 'M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10',
  compare: 'M6 3v10M10 3v10M3 5.5h3M3 10.5h3M10 5.5h3M10 10.5h3',
  trash: 'M3 4.5h10M6.5 4V2.5h3V4M4.5 4.5l.5 9h6l.5-9',
  theme: 'M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 2.5v11',
  help: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.3 6.3a1.8 1.8 0 1 1 2.6 1.6c-.6.3-.9.7-.9 1.3M8 11.4v.1',
  star: 'M8 2.2l1.8 3.7 4 .6-2.9 2.8.7 4L8 11.4l-3.6 1.9.7-4-2.9-2.8 4-.6z',
  check: 'M3 8.5l3.5 3.5L13 4.5',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  up: 'M8 13V3M4 7l4-4 4 4',
  down: 'M8 3v10M4 9l4 4 4-4',
};

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="drawing" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
