// The reader of prompts' pictures: it makes the patches that the model's vision tower reads.
#pragma once

#include <memory>

#include "app/assembly/inputs.hpp"
#include "runtime/core/pictures.hpp"

namespace paceline::app {

/// The reader of the run's pictures; null if no prompt has any.
[[nodiscard]] std::shared_ptr<const PictureReader> make_picture_reader(const Inputs& inputs);

}  // namespace paceline::app
