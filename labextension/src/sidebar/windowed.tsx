/** A list of which only the rows in sight are in the page, with one row in the tab order. */
import * as React from 'react';
import * as virtual from '../run/rowwindow';

const SPARE_ROWS = 8;
/** So many rows before the end the next ones are asked for. */
const AHEAD_ROWS = 30;

export interface IWindowedListProps<T> {
  items: readonly T[];
  keyOf: (item: T) => string;
  label: string;
  /** Of all rows, whether they are among `items` yet or not. */
  total: number;
  /** A first guess; the rows themselves tell. */
  rowHeight: number;
  render: (item: T, current: boolean) => React.ReactNode;
  onKey: (item: T, event: React.KeyboardEvent) => void;
  /** The end of `items` comes into sight. */
  onEnd: () => void;
}

const STEPS: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

export function WindowedList<T>(props: IWindowedListProps<T>): React.ReactElement {
  const { items, keyOf } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const [view, setView] = React.useState({ top: 0, height: 600 });
  const [rowHeight, setRowHeight] = React.useState(props.rowHeight);
  const [currentKey, setCurrentKey] = React.useState<string | null>(null);
  const moved = React.useRef(false);

  const found = items.findIndex(item => keyOf(item) === currentKey);
  // A row that went away leaves its place to the next one.
  const lastIndex = React.useRef(0);
  const current = found >= 0 ? found : Math.max(0, Math.min(lastIndex.current, items.length - 1));
  lastIndex.current = current;

  const geometry = { rows: items.length, rowHeight, viewport: view.height };
  const { first, end } = virtual.window(view.top, geometry, SPARE_ROWS);
  const rows = [...items.slice(first, end).keys()].map(offset => first + offset);
  // The current row stays, also out of sight: the focus may be in it.
  if (items.length && (current < first || current >= end)) {
    rows.push(current);
    rows.sort((a, b) => a - b);
  }

  React.useLayoutEffect(() => {
    const node = box.current;
    if (!node) {
      return;
    }
    const measure = () => {
      const row = node.querySelector<HTMLElement>('[role=listitem] > *');
      setRowHeight(known => row?.offsetHeight || known);
      setView(known =>
        node.clientHeight && node.clientHeight !== known.height
          ? { ...known, height: node.clientHeight }
          : known
      );
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(node);
    return () => observer.disconnect();
  }, [items.length === 0]);

  React.useEffect(() => {
    if (end + AHEAD_ROWS >= items.length && items.length < props.total) {
      props.onEnd();
    }
  }, [end, items.length, props.total]);

  React.useLayoutEffect(() => {
    if (moved.current) {
      moved.current = false;
      focusRow(box.current, current);
    }
  });

  const move = (to: number) => {
    const index = Math.max(0, Math.min(items.length - 1, to));
    const node = box.current;
    if (node) {
      const top = index * rowHeight;
      if (top < node.scrollTop) {
        node.scrollTop = top;
      } else if (top + rowHeight > node.scrollTop + node.clientHeight) {
        node.scrollTop = top + rowHeight - node.clientHeight;
      }
      setView(known => ({ ...known, top: node.scrollTop }));
    }
    moved.current = true;
    setCurrentKey(keyOf(items[index]));
  };

  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.altKey || event.ctrlKey || event.metaKey || !items.length) {
      return;
    }
    const edge = event.key === 'Home' ? 0 : event.key === 'End' ? items.length - 1 : null;
    if (edge !== null || event.key in STEPS) {
      event.preventDefault();
      move(edge ?? current + STEPS[event.key]);
    } else {
      props.onKey(items[current], event);
    }
  };

  return (
    <div
      className="jpd-sb-window"
      ref={box}
      role="list"
      aria-label={props.label}
      onScroll={event => {
        const { scrollTop: top, clientHeight: height } = event.currentTarget;
        setView({ top, height });
      }}
      onKeyDown={onKeyDown}
    >
      <div
        className="jpd-sb-window-all"
        role="presentation"
        style={{ height: items.length * rowHeight }}
      >
        {rows.map(index => (
          <div
            key={keyOf(items[index])}
            className="jpd-sb-window-row"
            role="listitem"
            data-index={index}
            aria-setsize={props.total}
            aria-posinset={index + 1}
            style={{ top: index * rowHeight }}
            onFocus={() => setCurrentKey(keyOf(items[index]))}
          >
            {props.render(items[index], index === current)}
          </div>
        ))}
      </div>
    </div>
  );
}

function focusRow(list: HTMLElement | null, index: number): void {
  list
    ?.querySelector<HTMLElement>(`[data-index="${index}"] [data-main]`)
    ?.focus({ preventScroll: true });
}
