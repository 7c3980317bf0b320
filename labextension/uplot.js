// A loader: uPlot without what no chart here uses, such as its bars, splines and calendars. A bundler then leaves out
// the code behind them, which is a sixth of uPlot.
const READ = ['paths', 'pxRatio', 'rangeNum'];
const ATTRIBUTE = /^\t?(?:uPlot|\(paths)\.(\w+) += \w+\)?;$/gm;
// No axis has `time: true`.
const CALENDAR = /= genTimeStuffs\([^)]*\);$/gm;
const TIMES = /^(\tconst _(?:time\w+|fmtDate|tzDate) +=).*;$/gm;

module.exports = source =>
  [
    [ATTRIBUTE, (line, name) => (READ.includes(name) ? line : '')],
    [CALENDAR, '= [];'],
    [TIMES, '$1 null;']
  ].reduce((text, [what, by]) => {
    const trimmed = text.replace(what, by);
    if (trimmed === text) {
      throw new Error(`labextension/uplot.js finds nothing like ${what} in this uPlot`);
    }
    return trimmed;
  }, source);
