/** Frames of tracebacks and stacks as links to where they are: a line of a cell, or of a file. */
import { setAttribute } from './dom';

/** Where a frame is. */
export interface IPlace {
  file: string;
  /** What people call it: `In[7]`, or the file again. */
  label: string;
  /** From 1. */
  line: number | null;
}

/** What the host of a view can lead to. */
export interface IPlaces {
  /** Whether it knows a way there. */
  leads(place: IPlace): boolean;
  /** Go there. `from`: the frame's element. `own`: it is the cell under which the run is shown. */
  go(place: IPlace, from: HTMLElement, own: boolean): Promise<void>;
}

const FRAME = '.jpd-frame-place';

/** Make links of the frames that come into the boxes. `ownLabel`: what the run's own cell is called. */
export function linkFrames(
  boxes: readonly HTMLElement[],
  places: IPlaces | undefined,
  ownLabel: () => string,
  failed: (error: unknown) => void,
  signal: AbortSignal
): void {
  if (!places) {
    return;
  }
  const mark = (box: Element) => {
    for (const node of box.querySelectorAll<HTMLElement>(`${FRAME}:not([role])`)) {
      if (places.leads(placeOf(node))) {
        setAttribute(node, 'role', 'link');
        node.tabIndex = 0;
      }
    }
  };
  const go = (event: Event) => {
    const node = (event.target as HTMLElement).closest<HTMLElement>(`${FRAME}[role=link]`);
    if (node) {
      event.preventDefault();
      event.stopPropagation();
      const place = placeOf(node);
      places.go(place, node, place.label === ownLabel()).catch(failed);
    }
  };
  const observer = new MutationObserver(changes =>
    new Set(changes.map(change => change.target as Element)).forEach(mark)
  );
  for (const box of boxes) {
    mark(box);
    observer.observe(box, { childList: true, subtree: true });
    box.addEventListener('click', go, { signal });
    box.addEventListener('keydown', event => event.key === 'Enter' && go(event), { signal });
  }
  signal.addEventListener('abort', () => observer.disconnect());
}

function placeOf({ dataset }: HTMLElement): IPlace {
  const line = Number(dataset.line);
  return { file: dataset.file ?? '', label: dataset.label ?? '', line: line > 0 ? line : null };
}
