// The live tail: shows the events of a stream, newest on top. All texts go in by textContent.
"use strict";
(() => {
  const ROWS_MAX = 500;
  const rows = document.getElementById("rows");
  const state = document.getElementById("state");
  const skipped = document.getElementById("skipped");
  const button = document.getElementById("toggle");
  const { stream, page } = rows.dataset;
  let source = null;
  let skippedBefore = 0;
  let skippedNow = 0;

  function cell(row, kind, label, text) {
    const element = document.createElement(kind);
    const content = document.createElement("bdi");
    content.textContent = text;
    element.append(content);
    if (label) element.dataset.label = label;
    row.append(element);
    return element;
  }

  function show(message) {
    const row = document.createElement("tr");
    const place = cell(row, "th", "", "");
    place.scope = "row";
    const link = document.createElement("a");
    link.href = `${page}/${message.partition}/${message.offset}`;
    link.textContent = `${message.partition} : ${message.offset}`;
    place.replaceChildren(link);
    cell(row, "td", "Published", message.time);
    cell(row, "td", "Key", message.key);
    cell(row, "td", "Value", message.value).className = "value bytes";
    cell(row, "td", "Headers", message.headers).className = "bytes";
    rows.prepend(row);
    while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
  }

  function stop(text) {
    if (source) source.close();
    source = null;
    skippedBefore += skippedNow;
    skippedNow = 0;
    state.textContent = text;
    button.textContent = "Resume";
  }

  function start() {
    source = new EventSource(stream);
    button.textContent = "Stop";
    source.onopen = () => { state.textContent = "Waiting for new messages."; };
    source.onmessage = (event) => show(JSON.parse(event.data));
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) stop("The connection was refused.");
      else state.textContent = "Connecting again.";
    };
    source.addEventListener("skipped", (event) => {
      skippedNow = Number(event.data);
      skipped.textContent = skippedBefore + skippedNow;
    });
    source.addEventListener("ended", (event) => stop(JSON.parse(event.data)));
  }

  button.addEventListener("click", () => (source ? stop("Stopped.") : start()));
  button.hidden = false;
  start();
})();
