// The layout of telemetry shards, shared by their writer and the merge. Private to io.
//
//   one dataset for each type of record, named as in kTables: compound rows with the columns of
//       kColumns, appended under SWMR
//   /drafter_names: strings, by AcceptanceCell::drafter
//   attributes of /: attempt, rank, started (Unix time, seconds), host, cores, gpus, plan
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "io/hdf5/file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/core/recorded_telemetry.hpp"
#include "runtime/core/telemetry_columns.hpp"

namespace paceline {

template <>
inline constexpr auto kColumns<io::ScoreRecord> =
    std::tuple{Column{"start", &io::ScoreRecord::start, "s"},
               Column{"duration", &io::ScoreRecord::duration, "s"},
               Column{"prompt_index", kPromptOf, "1"},
               Column{"sample_index", kSampleOf, "1"},
               Column{"reward", &io::ScoreRecord::reward, "1"},
               Column{"outcome", &io::ScoreRecord::outcome}};
/// The columns of /attempts and /processes in telemetry.h5, but for their texts.
template <>
inline constexpr auto kColumns<RecordedAttempt> =
    std::tuple{Column{"attempt", &RecordedAttempt::attempt, "1"},
               Column{"ranks", &RecordedAttempt::ranks, "ranks"},
               Column{"started", &RecordedAttempt::started, "s"},
               Column{"ended", &RecordedAttempt::ended, "s"}};
template <>
inline constexpr auto kColumns<RecordedProcess> = std::tuple{
    Column{"attempt", &RecordedProcess::attempt, "1"}, Column{"rank", &RecordedProcess::rank, "1"},
    Column{"cores", &RecordedProcess::cores, "cores"},
    Column{"gpus", &RecordedProcess::gpus, "GPUs"}};

}  // namespace paceline

namespace paceline::io {

/// A tuple of `Of<Record>` for each type of record.
template <template <typename> typename Of>
using OfEachRecord =
    std::tuple<Of<StepRecord>, Of<RequestEvent>, Of<TransferRecord>, Of<KvPoolRecord>,
               Of<DraftMemoryRecord>, Of<StopPoint>, Of<ScoreRecord>, Of<RoleRecord>,
               Of<WriteRecord>, Of<AcceptanceCell>, Of<RankSummary>>;

template <typename Record>
struct Table {
  const char* name;  ///< name of the dataset in shards and of the group in telemetry.h5
};
/// Tables by record. In telemetry.h5, events are in /requests, and steps in a group for each rank.
inline constexpr OfEachRecord<Table> kTables{Table<StepRecord>{"steps"},
                                             Table<RequestEvent>{"events"},
                                             Table<TransferRecord>{"transfers"},
                                             Table<KvPoolRecord>{"kv_pool"},
                                             Table<DraftMemoryRecord>{"draft_memory"},
                                             Table<StopPoint>{"stop_points"},
                                             Table<ScoreRecord>{"scores"},
                                             Table<RoleRecord>{"roles"},
                                             Table<WriteRecord>{"writes"},
                                             Table<AcceptanceCell>{"acceptance"},
                                             Table<RankSummary>{"summary"}};
template <typename Record>
inline constexpr const char* kTable = std::get<Table<Record>>(kTables).name;

template <typename T>
h5::Field field_of_type() {
  if constexpr (std::is_enum_v<T>) {
    return {nullptr, 0, h5::native<std::underlying_type_t<T>>()};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return {nullptr, 0, h5::native<T>()};
  } else {
    h5::Field field = field_of_type<typename T::value_type>();
    field.shape.insert(field.shape.begin(), std::tuple_size_v<T>);
    return field;
  }
}

/// The columns of a record as HDF5 fields.
template <typename Record>
std::vector<h5::Field> fields_of() {
  const Record record{};
  const auto field_of = [&](const auto& column) {
    const auto& member = std::invoke(column.member, record);
    h5::Field field = field_of_type<std::remove_cvref_t<decltype(member)>>();
    field.name = column.name;
    field.unit = column.unit;
    field.offset =
        reinterpret_cast<const std::byte*>(&member) - reinterpret_cast<const std::byte*>(&record);
    return field;
  };
  return std::apply([&](const auto&... c) { return std::vector<h5::Field>{field_of(c)...}; },
                    kColumns<Record>);
}

}  // namespace paceline::io
