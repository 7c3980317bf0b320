// A loader: uPlot without what no chart here uses, such as its bars, splines, calendars and its own ticks of logarithmic
// axes. A bundler then leaves out the code behind them, which is a fifth of uPlot.
const READ = ['paths', 'pxRatio', 'rangeNum'];
const ATTRIBUTE = /^\t?(?:uPlot|\(paths)\.(\w+) += \w+\)?;$/gm;
// No axis has `time: true`.
const CALENDAR = /= genTimeStuffs\([^)]*\);$/gm;
const TIMES = /^(\tconst _(?:time\w+|fmtDate|tzDate) +=).*;$/gm;
const IS_TIME = /\bisTime\b(?! =)/g;
// Each axis has its own `values`, and a logarithmic one its own `range`, `splits` and `filter`. None is an x axis.
const LOGARITHMIC = /sc\.distr == 3 \? \w+ : sc\.distr == 4 \? \w+ : (?=\w)/g;
const FILTER = /sc\.distr >= 3 && .*: (?=retArg1)/g;
const LOG_OF_X = /\[_min, _max\] = range(?:Log|Asinh)\(.*;/g;
const VALUES = /(?<=: av) \|\| numAxisVals\b/g;

module.exports = source =>
  [
    [ATTRIBUTE, (line, name) => (READ.includes(name) ? line : '')],
    [CALENDAR, '= [];'],
    [TIMES, '$1 null;'],
    [IS_TIME, 'false'],
    [LOGARITHMIC, ''],
    [FILTER, ''],
    [LOG_OF_X, ';'],
    [VALUES, '']
  ].reduce((text, [what, by]) => {
    const trimmed = text.replace(what, by);
    if (trimmed === text) {
      throw new Error(`labextension/uplot.js finds nothing like ${what} in this uPlot`);
    }
    return trimmed;
  }, source);
