// A loader: uPlot without the attributes that nothing here reads, such as its bars, splines and dates. A bundler
// then leaves out the code behind them, which is an eighth of uPlot.
const READ = ['paths', 'pxRatio', 'rangeNum'];
const ATTRIBUTE = /^\t?(?:uPlot|\(paths)\.(\w+) += \w+\)?;$/gm;

module.exports = source => {
  const trimmed = source.replace(ATTRIBUTE, (line, name) => (READ.includes(name) ? line : ''));
  if (trimmed === source) {
    throw new Error('uPlot is written in another way than labextension/uplot.js expects');
  }
  return trimmed;
};
