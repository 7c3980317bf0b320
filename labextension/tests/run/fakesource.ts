/** A run in memory, whose facts a test changes and tells of. */
import type {
  Attempt,
  ICurve,
  IDisposable,
  ILogSubscription,
  ILogLine,
  ILogPage,
  IFailureCard,
  IRankError,
  IResult,
  IRunInfo,
  IContent,
  IDisplay,
  IMediaList,
  IMediaPage,
  IRunSource,
  ISearchQuery,
  ISearchResult,
  IStacks,
  IStepProfile,
  IUsage,
  LogOf,
  RunChange,
  State
} from '../../src/run/source';

export function runInfo(
  worldSize: number,
  state: State = 'running',
  more: Partial<IRunInfo> = {}
): IRunInfo {
  return {
    id: 'r-1',
    name: 'In[7]',
    backend: 'local',
    world_size: worldSize,
    state,
    attempt: 0,
    created: 1000,
    started: 1001,
    ended: state === 'running' ? null : 1011,
    reason: null,
    notebook: null,
    label: 'In[7]',
    warm: false,
    stall: null,
    progress: null,
    host_time: 1006,
    max_restarts: 0,
    path: '/runs/r-1',
    ranks: Array.from({ length: worldSize }, (_, rank) => ({
      rank,
      state,
      pid: 100 + rank,
      host: 'node-0',
      local_rank: rank,
      exit_code: null,
      signal_name: null,
      started: 1001,
      ended: null,
      peak_memory_bytes: null
    })),
    progress_by_rank: [],
    notes: [],
    source: 'train()',
    ...more
  };
}

export class FakeSource implements IRunSource {
  readonly kind = 'fake';
  readonly id = 'r-1';
  readonly listeners = new Set<(change: RunChange) => void>();
  readonly asked: string[] = [];
  readonly stops: boolean[] = [];
  readonly saved: string[] = [];
  readonly searches: (AbortSignal | undefined)[] = [];
  lines: string[] = [];
  /** What each rank has not finished yet. */
  unfinished: string[] = [];
  ranksOf: (n: number) => number[] = () => [0];
  curveList: ICurve[] = [];
  usageTold: IUsage = { attempt: 0, host_time: 0, ranks: [] };
  stepsTold: IStepProfile = {
    attempt: 0,
    ranks: [],
    straggler: null,
    critical: false,
    missing: []
  };
  errorList: IRankError[] = [];
  cardTold: IFailureCard | null = null;
  resultList: IResult[] = [];
  displayList: IDisplay[] = [];
  /** By hash. */
  contents: Record<string, string> = {};
  failure: Error | null = null;

  constructor(public info: IRunInfo) {}

  tell(change: RunChange): void {
    if (change.kind === 'run') {
      this.info = change.run;
    }
    this.listeners.forEach(listener => listener(change));
  }

  /** The logs whose lines come along with the news. */
  readonly along: LogOf[] = [];

  /** Whether the first lines of a log come along, too. */
  live = false;

  followLog(of: LogOf): ILogSubscription {
    this.along.push(of);
    return { live: this.live, dispose: () => void this.along.splice(this.along.indexOf(of), 1) };
  }

  grow(...lines: string[]): void {
    this.lines.push(...lines);
    this.tell({
      kind: 'log',
      id: this.id,
      ranks: { '0': this.lines.length },
      all: this.lines.length
    });
  }

  async run(): Promise<IRunInfo> {
    if (this.failure) {
      throw this.failure;
    }
    return this.info;
  }

  async logPage(rank: LogOf, start: number, count: number, attempt?: Attempt): Promise<ILogPage> {
    const earlier = attempt === null || attempt === undefined ? '' : ` of attempt ${attempt}`;
    this.asked.push(`${rank ?? 'all'} ${start} ${count}${earlier}`);
    const total = this.lines.length;
    const first = start < 0 ? Math.max(0, total + start) : start;
    const lines = this.lines.slice(first, first + count).map((text, i): ILogLine => {
      const ranks = this.ranksOf(first + i);
      return {
        n: first + i,
        rank: typeof rank === 'string' ? null : (rank ?? ranks[0]),
        ranks: rank === null ? ranks : undefined,
        time: 0,
        text
      };
    });
    const partial = this.unfinished.map((text, of) => ({ rank: of, time: 0, text }));
    const atEnd = start + count >= total || start < 0;
    const complete = this.info.ended !== null;
    return { start: first, total, complete, lines, partial: atEnd ? partial : [] };
  }

  async logLines(of: LogOf, numbers: readonly number[]): Promise<ILogLine[]> {
    this.asked.push(`lines ${numbers.join()}`);
    const { lines } = await this.logPage(of, 0, this.lines.length);
    return lines.filter(line => numbers.includes(line.n));
  }

  async logSearch(
    _rank: LogOf,
    { query, regex, limit = 1000 }: ISearchQuery,
    signal?: AbortSignal
  ): Promise<ISearchResult> {
    this.searches.push(signal);
    const expression = new RegExp(regex ? query.replace('(?i:', '(?:') : ''); // of Python
    const found = (line: string) => (regex ? expression.test(line) : line.includes(query));
    const hits = this.lines.flatMap((line, n) => (found(line) ? [n] : []));
    return { count: hits.length, hits: hits.slice(-limit), truncated: hits.length > limit };
  }

  async curves() {
    return { names: this.curveList.map(curve => curve.name), curves: this.curveList };
  }

  async profile(): Promise<IStepProfile> {
    this.asked.push('profile');
    return this.stepsTold;
  }

  async usage(points: number) {
    this.asked.push(`usage ${points}`);
    return this.usageTold;
  }

  async errors(attempt?: Attempt) {
    this.asked.push(`errors of ${attempt ?? 'now'}`);
    return this.errorList;
  }

  async card(): Promise<IFailureCard | null> {
    return this.cardTold;
  }

  async results() {
    return this.resultList;
  }

  async displays() {
    const displays = this.displayList;
    return { attempt: 0, version: 1, start: 0, total: displays.length, displays };
  }

  async media(): Promise<IMediaList> {
    return { attempt: 0, version: 1, series: [] };
  }

  async mediaPage(name: string, start: number): Promise<IMediaPage> {
    return { name, start, total: 0, steps: [] };
  }

  async content(rank: number, content: IContent) {
    this.asked.push(`content ${rank} ${content.hash ?? ''}`);
    return new Blob([this.contents[content.hash ?? ''] ?? ''], { type: content.mime });
  }

  kept: IStacks = { groups: [], silent: [] };

  async keptStacks() {
    return this.kept;
  }

  async stacks() {
    return {
      groups: [
        { ranks: [0, 1], frames: [{ label: 'In[7]', line: 3, function: 'f', source: 'wait()' }] }
      ],
      silent: [2]
    };
  }

  async stop(kill: boolean): Promise<void> {
    this.stops.push(kill);
  }

  async download(): Promise<void> {}

  async downloadFile(name: string): Promise<void> {
    this.saved.push(name);
  }

  watch(listener: (change: RunChange) => void): IDisposable {
    this.listeners.add(listener);
    return { dispose: () => void this.listeners.delete(listener) };
  }
}
