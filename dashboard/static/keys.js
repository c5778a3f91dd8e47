// The keyboard of the runs page. It reads no text but the name in the focused row, which Python holds against its list.
const CELL = /^glide-cell-\d+-\d+$/;
const REACHED = "[data-testid=stMain] :is(a[href], button, input, [tabindex]):not(:disabled, [tabindex='-1'])";

function isTyping(element) {
  return element && (element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName));
}

function focusedCell() {
  const active = document.activeElement;
  if (!active || !active.closest(".st-key-runs_table")) return null;
  if (CELL.test(active.id)) return active;
  return active.tagName === "CANVAS" ? active.querySelector("td[aria-selected=true]") : null;
}

// The grid has the focus, whether or not a cell of it is chosen; its tools above are buttons, and Tab goes through them.
function inGrid() {
  const active = document.activeElement;
  return Boolean(active?.closest(".st-key-runs_table")) && (active.tagName === "CANVAS" || CELL.test(active.id));
}

function press(selector) {
  const button = document.querySelector(selector);
  if (button && !button.disabled) button.click();
  return Boolean(button);
}

// Lead out of the table, to what comes next or before: by itself Tab goes through every cell of the row.
function leave(back) {
  const table = document.querySelector(".st-key-runs_table");
  const side = back ? Node.DOCUMENT_POSITION_PRECEDING : Node.DOCUMENT_POSITION_FOLLOWING;
  const found = [...document.querySelectorAll(REACHED)].filter(
    (one) => table.compareDocumentPosition(one) & side && !table.contains(one) && one.offsetParent,
  );
  const next = back ? found.at(-1) : found[0];
  if (next) next.focus();
  return Boolean(next);
}

export default function ({ setTriggerValue }) {
  const onKey = (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && event.isTrusted;
    if (!plain || isTyping(document.activeElement) || document.querySelector("[role=dialog]")) return;
    const cell = focusedCell();
    let taken = true;
    if (event.key === "/") {
      const search = document.querySelector(".st-key-q input");
      if (search) { search.focus(); search.select(); }
    } else if (event.key === "c") {
      taken = press(".st-key-compare_chosen button");
    } else if (event.key === "?") {
      taken = press(".st-key-keyboard button");
    } else if (event.key === "Tab" && (cell || inGrid())) {
      taken = leave(event.shiftKey);
    } else if (cell && event.key === "Enter") {
      setTriggerValue("open", cell.parentElement.querySelector("[aria-colindex='1']").textContent);
    } else if (cell && event.key === " " && !event.shiftKey) {
      // The grid itself ticks a row by Shift and Space.
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {
        key: " ", code: "Space", keyCode: 32, shiftKey: true, bubbles: true, cancelable: true,
      }));
    } else {
      taken = false;
    }
    if (taken) { event.preventDefault(); event.stopPropagation(); }
  };
  document.addEventListener("keydown", onKey, true);
  document.body.dataset.runsKeys = "heard";
  return () => {
    document.removeEventListener("keydown", onKey, true);
    delete document.body.dataset.runsKeys;
  };
}
