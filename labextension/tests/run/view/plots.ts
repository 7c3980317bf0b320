/** Plots without a canvas, which jsdom does not have. */

/** How many plots there were and are, and what they were given to draw. */
export const plots = { made: 0, alive: 0, data: [] as unknown[] };

export class FakePlot {
  width = 300;
  series: unknown[];
  cursor = {};
  constructor(options: { series: unknown[] }, data: unknown) {
    plots.made++;
    plots.alive++;
    plots.data.push(data);
    this.series = options.series;
  }
  setData(data: unknown) {
    plots.data.push(data);
  }
  setScale() {}
  setSize() {}
  setCursor() {}
  destroy() {
    plots.alive--;
  }
}
